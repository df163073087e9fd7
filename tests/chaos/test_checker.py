"""The checker on hand-made logs: what is right passes, and each kind of wrong is named."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos_lab.checker import check, tally
from chaos_lab.evidence import Answer, Effect, End, Evidence, Final, Run, Start, Task, load
from chaos_lab.rules import RULES

T = 1_000_000.0  # when the task is due
SCRIPTS = Path(__file__).parents[2] / "scripts"


def task(**changes: Any) -> Task:
    made = Task("a", "quick", sent=T - 5, due=T, max_retries=3, retry_delay=0.5, accepted=True)
    return made._replace(**changes)


def start(token: int = 1, at: float = T + 0.01, version: int = 1) -> Start:
    return Start("a", token, at, "w", version)


def end(token: int = 1, at: float = T + 0.02, outcome: str = "completed") -> End:
    return End("a", token, at, "w", outcome, f"r{token}" if outcome == "completed" else None)


def run(token: int = 1, outcome: str = "completed") -> Run:
    result = f"r{token}" if outcome == "completed" else None
    verdict = outcome if outcome in ("completed", "cancelled", "skipped") else None
    return Run("a", token, outcome, T + token, result, verdict=verdict)


def final(token: int = 1, status: str = "completed") -> Final:
    return Final("a", status, token, f"r{token}" if status == "completed" else None)


def answer(status: int | None, at: float = T - 1, due: float | None = None) -> Answer:
    return Answer("a", at - 0.01, at, status, due)


def evidence(*records: Any, cancel: Answer | None = None, change: Answer | None = None) -> Evidence:
    made = Evidence()
    made.add(*records)
    for some in made.runs.values():
        if made.finals and all(one.verdict is None for one in some):
            some[-1] = some[-1]._replace(verdict="failed")
    made.cancels = [cancel] if cancel else []
    made.changes = [change] if change else []
    return made


def broken(*records: Any, **answers: Answer) -> set[str]:
    """The names of the rules that these records break."""
    return {one.rule for one in check(evidence(*records, **answers))}


WELL = (task(), start(), end(), run(), final())
RETRIED = (
    task(),
    *(start(1), end(1, outcome="failed"), run(1, "failed")),
    *(start(2, T + 0.6), end(2, T + 0.7), run(2), final(2)),
)
CANCELLED = (task(), run(1, "cancelled")._replace(ran=False), final(1, "cancelled"))


# What is right


@pytest.mark.parametrize(
    "records",
    [
        WELL,
        RETRIED,
        (task(accepted=None),),
        (task(accepted=None), *WELL[1:]),
        # A worker that was taken for dead goes on later: stale, and harmless.
        (*RETRIED[:2], run(1, "lost"), *RETRIED[4:], end(1, T + 9)),
        # Put off: no outcome, and a higher token after the delay.
        (*RETRIED[:2], end(1, outcome="snoozed"), *RETRIED[4:]),
        # Redis lost its data: begun twice under one token, one of the two reports counts.
        (*WELL, start(1, T + 3), end(1, T + 4)._replace(result="another")),
        (task(max_retries=0), start(), run(1, "lost"), final(1, "failed")),
        (task(), run(1, "skipped"), final(1, "failed")),
    ],
)
def test_what_is_right_passes(records: tuple[Any, ...]) -> None:
    assert check(evidence(*records)) == []


def test_cancels_and_changes_that_won_or_lost_pass() -> None:
    assert broken(*CANCELLED, cancel=answer(200)) == set()
    assert broken(*WELL, cancel=answer(409, T + 1)) == set()
    assert broken(*WELL, cancel=answer(None)) == set()
    late = (start(at=T + 2.01, version=2), end(at=T + 2.02), run(), final())
    assert broken(task(), *late, change=answer(200, due=T + 2)) == set()
    assert broken(*WELL, change=answer(409, due=T + 2)) == set()
    assert broken(task(), *late, change=answer(None, due=T + 2)) == set()
    assert broken(*WELL, change=answer(None, due=T - 2)) == set()


def test_a_cancel_of_what_runs_may_come_too_late_for_the_worker() -> None:
    records = (task(), start(at=T + 0.02), end(), run(1, "cancelled"), final(2, "cancelled"))
    assert broken(*records, cancel=answer(200, T + 0.01)) == set()


# What is wrong


@pytest.mark.parametrize(
    ("rule", "records"),
    [
        ("lost", (task(),)),
        ("lost", (task(accepted=False),)),
        ("lost", WELL[1:]),
        ("stuck", (task(), final(0, "pending"))),
        ("stuck", (task(), final(1, "running"))),
        ("twice", (*WELL, final())),
        ("twice", (*WELL, run())),
        ("twice", (*WELL, start(2, T + 1), end(2, T + 1), run(2), final(2))),
        ("tokens", (task(), start(2), end(2), run(2), run(1, "lost"), final(2))),
        ("tokens", (task(max_retries=0), *RETRIED[1:])),
        ("outcome", (*WELL[:4], final(1, "failed"))),
        ("outcome", (*WELL[:4], final(2))),
        ("outcome", (*WELL[:4], final(2, "cancelled"))),
        ("outcome", (task(), start(), end(), run()._replace(result="another"), final())),
        ("outcome", (task(), start(), run(), final())),
        ("outcome", (task(), run(), final())),
        ("outcome", (task(), start(), end(), final())),
        ("unrecorded", (*WELL, start(2, T + 1), end(2, T + 1))),
        ("unrecorded", (task(), start(1), *WELL[:0], start(2), end(2), run(2), final(2))),
        ("early", (task(), start(at=T - 0.001), *WELL[2:])),
        ("early", (*RETRIED[:4], start(2, T + 0.4), *RETRIED[5:])),
        ("early", (*RETRIED[:2], end(1, outcome="snoozed"), start(2, T + 0.4), *RETRIED[5:])),
    ],
)
def test_what_is_wrong_is_named(rule: str, records: tuple[Any, ...]) -> None:
    assert rule in broken(*records)


def test_a_cancelled_task_that_is_started_all_the_same() -> None:
    cancel = answer(200, T - 1)
    assert "cancelled" in broken(*CANCELLED, start(), cancel=cancel)
    assert "cancelled" in broken(*WELL, cancel=cancel)
    assert "cancelled" in broken(*CANCELLED, cancel=answer(409))


def test_a_changed_task_that_runs_as_it_was() -> None:
    assert "changed" in broken(*WELL, change=answer(200, due=T - 2))
    early = (start(at=T + 1, version=2), *WELL[2:])
    assert broken(task(), *early, change=answer(200, due=T + 2)) == {"early"}
    assert "changed" in broken(task(), *early, change=answer(409, due=T))


def test_work_that_must_not_start_twice() -> None:
    records = (task(kind="once", max_retries=0), start(), start(at=T + 3), *WELL[2:])
    assert broken(*records) == {"once"}


def test_effects() -> None:
    records = (task(kind="effect"), *WELL[1:])
    effect = Effect("a", "noon", 1)
    assert broken(*records, effect) == set()
    assert broken(*records) == {"effects"}
    assert broken(*records, effect, effect._replace(token=2)) == {"effects"}


PERIODIC = task(kind="periodic", every=2.0, runs=2)


def occurrence(number: int, token: int, outcome: str = "completed") -> Run:
    return run(token, outcome)._replace(occurrence=T + 2 * number)


def test_occurrences_that_were_run_or_skipped_pass() -> None:
    records = (
        PERIODIC, start(1), end(1, outcome="failed"), occurrence(0, 1, "failed"),
        start(2, T + 0.6), end(2, T + 0.7), occurrence(0, 2), occurrence(1, 2, "skipped"),
        occurrence(2, 2, "skipped"), start(3, T + 6.1), end(3, T + 6.2), occurrence(3, 3), final(3),
    )  # fmt: skip
    assert broken(*records) == set()


@pytest.mark.parametrize(
    ("made", "passes"),
    [
        ({"answered": T + 2.5}, True),  # 0 and 1 may have been over by then
        ({"answered": T + 1.5}, False),  # 1 was not
        ({"accepted": None, "answered": T - 0.5}, True),
    ],
)
def test_what_came_due_before_the_task_was_made_is_not_owed(
    made: dict[str, Any], passes: bool
) -> None:
    records = (
        PERIODIC._replace(**made), start(1, T + 4.1), end(1, T + 4.2), occurrence(2, 1),
        start(2, T + 6.1), end(2, T + 6.2), occurrence(3, 2), final(2),
    )  # fmt: skip
    assert broken(*records) == (set() if passes else {"grid"})


@pytest.mark.parametrize(
    "records",
    [
        (occurrence(0, 1), occurrence(2, 2)),
        (occurrence(0, 1), occurrence(0, 2)),
        (occurrence(0, 1), occurrence(1, 2, "skipped"), occurrence(1, 2)),
        (occurrence(0, 1), run(2)._replace(occurrence=T + 1)),
        (occurrence(0, 1),),
        (occurrence(0, 1), occurrence(1, 2), occurrence(2, 2)),
    ],
)
def test_occurrences_that_are_left_out_doubled_or_made_up(records: tuple[Run, ...]) -> None:
    ends = [end(1), end(2)]
    assert "grid" in broken(PERIODIC, *records, *ends, final(2))


def test_an_occurrence_that_begins_early() -> None:
    records = (PERIODIC._replace(runs=1), start(1, T + 1), end(1), occurrence(1, 1), final(1))
    assert "grid" in broken(*records, occurrence(0, 1, "skipped"))


@pytest.mark.parametrize(
    "records",
    [
        (task(), final(1, "cancelled")),
        (*RETRIED[:3], run(1, "failed")._replace(verdict="failed"), *RETRIED[4:]),
        (*WELL[:3], run()._replace(verdict="failed"), final()),
        (*RETRIED[:3], run(1, "failed")._replace(verdict="completed"), *RETRIED[4:6],
         run(2)._replace(verdict=None), final(2)),
        (PERIODIC._replace(runs=1), start(2), end(2), occurrence(0, 1, "lost"), occurrence(1, 2),
         final(2)),
    ],
)  # fmt: skip
def test_occurrences_with_no_verdict_or_two_or_another(records: tuple[Any, ...]) -> None:
    assert "verdicts" in broken(*records)


def test_what_is_left_in_redis_is_stuck() -> None:
    found = evidence(*WELL)
    found.leftovers = {"duly:{q}:tasks": 1, "duly:{q}:reports": 0}
    assert tally(check(found)) == {rule.__name__: int(rule.__name__ == "stuck") for rule in RULES}


# From files


def test_evidence_is_read_from_its_folder(tmp_path: Path) -> None:
    def write(name: str, *lines: dict[str, Any]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name).write_text(text)

    plain = task()._asdict()
    del plain["sent"], plain["accepted"], plain["answered"]
    doubtful = {**plain, "id": "b"}
    write(
        "client.jsonl",
        {"e": "submit", "batch": 1, "sent": T - 5, "tasks": [plain]},
        {"e": "submit", "batch": 2, "sent": T - 5, "tasks": [doubtful]},
        {"e": "submitted", "batch": 1, "at": T, "accepted": True},
        {"e": "cancel", **answer(409)._asdict()},
        {"e": "change", **answer(None, due=T)._asdict()},
    )
    write("worker-1.jsonl", {"e": "start", **start()._asdict()}, {"e": "end", **end()._asdict()})
    write("worker-2.jsonl")
    write(
        "store.jsonl",
        {"e": "leftover", "key": "k", "size": 0},
        {"e": "final", **final()._asdict()},
        {"e": "run", **run()._asdict()},
    )
    found = load(tmp_path)
    assert found.tasks == {"a": task(answered=T), "b": task(id="b", accepted=None)}
    assert found.cancels == [answer(409)]
    assert found.changes == [answer(None, due=T)]
    assert (found.starts["a"], found.ends["a", 1]) == ([start()], [end()])
    assert (found.finals["a"], found.runs["a"]) == ([final()], [run()])
    assert check(found) == []


def test_the_checker_knows_nothing_of_duly() -> None:
    code = "import sys, chaos_lab.checker; print([m for m in sys.modules if m.split('.')[0] == 'duly'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(SCRIPTS)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
