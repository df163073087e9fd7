"""What must hold of the evidence: section by section the guarantees of docs/guarantees.md.

Each rule yields what breaks it. Pure, and nothing of duly is imported.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from chaos_lab.evidence import Answer, Evidence, Run, Start, Task

_FINISHED = ("completed", "failed", "cancelled")
_TAKEN_AWAY = ("lost", "timed_out")
_TIE_S = 0.000_2  # what rounding to the store's microseconds and the logs' floats may make


class Broken(NamedTuple):
    """A rule that does not hold, of which task, and how."""

    rule: str
    id: str
    detail: str


Rule = Callable[[Evidence], Iterator[Broken]]


def lost(evidence: Evidence) -> Iterator[Broken]:
    """What was accepted is in the store, and what is in the store was submitted."""
    for task in evidence.tasks.values():
        if task.accepted and task.id not in evidence.finals:
            yield Broken("lost", task.id, f"{task.kind} was accepted and is nowhere")
        if task.accepted is False:
            yield Broken("lost", task.id, f"{task.kind} was refused, and nothing is wrong with it")
    for task_id in evidence.finals.keys() - evidence.tasks.keys():
        yield Broken("lost", task_id, "was never submitted")
    for answer in evidence.cancels + evidence.changes:
        if answer.status not in (200, 409, None):
            yield Broken("lost", answer.id, f"{answer.status} to a cancel or change")


def stuck(evidence: Evidence) -> Iterator[Broken]:
    """At the end nothing is left to do, and Redis is empty."""
    for finals in evidence.finals.values():
        for final in finals:
            if final.status not in _FINISHED:
                yield Broken("stuck", final.id, f"still {final.status} under token {final.token}")
    for key, size in evidence.leftovers.items():
        if size:
            yield Broken("stuck", "", f"{size} entries are left in {key}")


def twice(evidence: Evidence) -> Iterator[Broken]:
    """A task has one outcome, and an attempt has one."""
    for task_id, finals in evidence.finals.items():
        if len(finals) > 1:
            yield Broken("twice", task_id, f"is in the store {len(finals)} times: {finals}")
    for task_id, runs in _one_off(evidence):
        completed = [run.token for run in runs if run.outcome == "completed"]
        if len(completed) > 1:
            yield Broken("twice", task_id, f"completed under the tokens {completed}")
    for task_id, runs in evidence.runs.items():
        attempts = (run.token for run in runs if run.outcome != "skipped")
        for token, count in Counter(attempts).items():
            if count > 1:
                yield Broken("twice", task_id, f"token {token} has {count} outcomes")


def tokens(evidence: Evidence) -> Iterator[Broken]:
    """Tokens grow from attempt to attempt, and no attempt goes on past the task's retries."""
    for task_id, runs in evidence.runs.items():
        seen = [run.token for run in runs]
        if seen != sorted(seen):
            yield Broken("tokens", task_id, f"recorded in the order {seen}")
        task = evidence.tasks.get(task_id)
        counted = Counter(run.occurrence for run in runs if run.outcome != "cancelled")
        for count in counted.values():
            if task and count > task.max_retries + 1:
                yield Broken("tokens", task_id, f"{count} attempts, {task.max_retries} retries")


def outcome(evidence: Evidence) -> Iterator[Broken]:
    """A task ended as its last attempt did, with the result that its worker reported."""
    for task_id, finals in evidence.finals.items():
        runs = evidence.runs.get(task_id, [])
        for final in finals:
            periodic = _is_periodic(evidence, task_id)
            fits = periodic or _fits(final.status, runs, final.token)
            if final.status in _FINISHED and not fits:
                shown = [(run.token, run.outcome) for run in runs]
                yield Broken("outcome", task_id, f"{final.status} {final.token} after {shown}")
        for run in runs:
            if run.outcome == "completed":
                yield from _reported(evidence, run)


def _fits(status: str, runs: list[Run], token: int) -> bool:
    if status == "cancelled":
        return not any(run.outcome == "completed" for run in runs)
    if not runs or runs[-1].token != token:
        return False
    return (runs[-1].outcome == "completed") == (status == "completed")


def _reported(evidence: Evidence, run: Run) -> Iterator[Broken]:
    ends = evidence.ends.get((run.id, run.token), [])
    results = [end.result for end in ends if end.outcome == "completed"]
    if run.result not in results:
        said = f"recorded {run.result!r}, reported {results}"
        yield Broken("outcome", run.id, f"token {run.token}: {said}")


def unrecorded(evidence: Evidence) -> Iterator[Broken]:
    """Every attempt that was started has an outcome, unless its worker put it off."""
    for task_id, starts in evidence.starts.items():
        recorded = {run.token for run in evidence.runs.get(task_id, [])}
        for token in {start.token for start in starts} - recorded:
            ends = evidence.ends.get((task_id, token), [])
            if not any(end.outcome == "snoozed" for end in ends):
                detail = f"token {token} was started and has no outcome ({sorted(recorded)} have)"
                yield Broken("unrecorded", task_id, detail)


def early(evidence: Evidence) -> Iterator[Broken]:
    """No start before it is due; no retry before its back-off, no snooze before its end."""
    changes = {answer.id: answer for answer in evidence.changes}
    for task_id, starts in evidence.starts.items():
        task = evidence.tasks.get(task_id)
        if task is None or task.every is not None:
            continue
        for start in starts:
            due = _due(task, changes.get(task_id), start)
            if start.at < due - _TIE_S:
                by_ms = (due - start.at) * 1000
                yield Broken("early", task_id, f"token {start.token} started {by_ms:.3f} ms early")
        if task_id not in changes or changes[task_id].status not in (200, None):
            yield from _early_again(evidence, task, starts)


def _due(task: Task, change: Answer | None, start: Start) -> float:
    if change is None or change.due is None:
        return task.due
    if change.status == 200:
        return change.due if start.version > 1 else task.due
    return min(task.due, change.due) if change.status is None else task.due


def _early_again(evidence: Evidence, task: Task, starts: list[Start]) -> Iterator[Broken]:
    ordered = sorted(starts, key=lambda start: (start.token, start.at))
    outcomes = {run.token: run.outcome for run in evidence.runs.get(task.id, [])}
    for before, after in pairwise(ordered):
        ends = evidence.ends.get((task.id, before.token), [])
        wanted = outcomes.get(before.token, "snoozed")
        if before.token == after.token or wanted not in ("failed", "snoozed"):
            continue
        moments = [end.at for end in ends if end.outcome == wanted]
        if moments and after.at < min(moments) + task.retry_delay - _TIE_S:
            waited = after.at - min(moments)
            detail = f"token {after.token} came {waited:.3f} s after {wanted} {before.token}"
            yield Broken("early", task.id, f"{detail}, not {task.retry_delay:g} s")


def cancelled(evidence: Evidence) -> Iterator[Broken]:
    """After 200 to a cancel nothing of the task is claimed any more, and it ends cancelled."""
    for answer in evidence.cancels:
        finals = evidence.finals.get(answer.id, [])
        ended_so = any(final.status == "cancelled" for final in finals)
        if answer.status is not None and ended_so != (answer.status == 200):
            yield Broken("cancelled", answer.id, f"{answer.status} to the cancel, then {finals}")
        if answer.status == 200:
            yield from _started_after(evidence, answer, "cancelled", lambda start: True)


def changed(evidence: Evidence) -> Iterator[Broken]:
    """After 200 to a change the old values are never run; refused, the new ones are not."""
    for answer in evidence.changes:
        if answer.status == 200:
            yield from _started_after(evidence, answer, "changed", lambda start: start.version == 1)
        elif answer.status is not None:
            for start in evidence.starts.get(answer.id, []):
                if start.version != 1:
                    yield Broken("changed", answer.id, f"{answer.status} to the change, then ran")


def _started_after(
    evidence: Evidence, answer: Answer, rule: str, counts: Callable[[Start], bool]
) -> Iterator[Broken]:
    # A worker that was taken for dead may wake up at any time and go on with what it had in hand; and
    # one that was told to stop may have been about to begin.
    had = {
        run.token
        for run in evidence.runs.get(answer.id, [])
        if run.ran and run.outcome in (*_TAKEN_AWAY, "cancelled")
    }
    for start in evidence.starts.get(answer.id, []):
        if start.at > answer.answered and start.token not in had and counts(start):
            by_ms = (start.at - answer.answered) * 1000
            yield Broken(rule, answer.id, f"token {start.token} started {by_ms:.1f} ms after 200")


def once(evidence: Evidence) -> Iterator[Broken]:
    """A task with on_lost = fail (and no retries) is started at most once."""
    for task_id, starts in evidence.starts.items():
        task = evidence.tasks.get(task_id)
        if task and task.kind == "once" and len(starts) > 1:
            yield Broken("once", task_id, f"started under {[start.token for start in starts]}")


def effects(evidence: Evidence) -> Iterator[Broken]:
    """An effect is applied at most once for each occurrence, and once if the task completed."""
    counts = Counter((effect.id, effect.occurrence) for effect in evidence.effects)
    for (task_id, occurrence), count in counts.items():
        if count > 1:
            yield Broken("effects", task_id, f"applied {count} times for {occurrence}")
    applied = {effect.id for effect in evidence.effects}
    for task in evidence.tasks.values():
        completed = any(f.status == "completed" for f in evidence.finals.get(task.id, []))
        if task.kind == "effect" and completed and task.id not in applied:
            yield Broken("effects", task.id, "completed, and its effect is not there")


def grid(evidence: Evidence) -> Iterator[Broken]:
    """Each occurrence of a periodic task is run or recorded skipped, once, and none is made up."""
    for task in evidence.tasks.values():
        if task.every is not None and task.id in evidence.finals:
            for detail in _grid(evidence, task, task.every):
                yield Broken("grid", task.id, detail)


def _grid(evidence: Evidence, task: Task, every: float) -> Iterator[str]:
    outcomes: dict[int, list[str]] = {}
    begins: dict[int, float] = {}
    for run in evidence.runs.get(task.id, []):
        number = round((run.occurrence - task.due) / every)
        if number < 0 or abs(task.due + number * every - run.occurrence) > _TIE_S:
            yield f"{run.outcome} is recorded of {run.occurrence}, which is no occurrence"
            continue
        if {"completed", "skipped"} & set(outcomes.setdefault(number, [])):
            yield f"occurrence {number}: {run.outcome} after {outcomes[number]}"
        outcomes[number].append(run.outcome)
        if run.outcome != "skipped":
            begins[run.token] = run.occurrence
    owed = range(_first_owed(task, every, outcomes), max(outcomes, default=-1) + 1)
    left_out = set(owed) - outcomes.keys()
    if left_out:
        yield f"occurrences {sorted(left_out)} are neither run nor skipped"
    ran = sum(set(some) != {"skipped"} for some in outcomes.values())
    if any(final.status == "completed" for final in evidence.finals[task.id]) and ran != task.runs:
        yield f"ended after {ran} occurrences that ran, not {task.runs}"
    for start in evidence.starts.get(task.id, []):
        by_s = begins.get(start.token, start.at) - start.at
        if by_s > _TIE_S:
            yield f"token {start.token} started {by_s * 1000:.3f} ms before its occurrence"


def _first_owed(task: Task, every: float, outcomes: Iterable[int]) -> int:
    """What comes due before a task is made is no occurrence of it: a node that stood still may make it late."""
    if task.accepted is None:  # made at any time, if at all
        return min(outcomes, default=0)
    made_by = task.sent if task.answered is None else task.answered
    return max(0, math.ceil((made_by - task.due) / every))


def verdicts(evidence: Evidence) -> Iterator[Broken]:
    """Each occurrence of a task that has ended has one verdict: that of its last run."""
    for task_id in evidence.finals:
        runs = evidence.runs.get(task_id, [])
        if not runs:
            yield Broken("verdicts", task_id, "ended without a verdict")
        occurrences: dict[float, list[Run]] = {}
        for run in runs:
            occurrences.setdefault(run.occurrence, []).append(run)
        for at, some in occurrences.items():
            said = [run.verdict for run in some if run.verdict is not None]
            if len(said) != 1:
                yield Broken("verdicts", task_id, f"the verdicts over {at} are {said}")
            elif some[-1].verdict != _verdict(some[-1]):
                shown = [(run.outcome, run.verdict) for run in some]
                yield Broken("verdicts", task_id, f"{at}: not that of the last run: {shown}")


def _verdict(run: Run) -> str:
    return "failed" if run.outcome in _TAKEN_AWAY else run.outcome


def _is_periodic(evidence: Evidence, task_id: str) -> bool:
    task = evidence.tasks.get(task_id)
    return task is not None and task.every is not None


def _one_off(evidence: Evidence) -> Iterator[tuple[str, list[Run]]]:
    """The runs of each task that has only one occurrence."""
    for task_id, runs in evidence.runs.items():
        if not _is_periodic(evidence, task_id):
            yield task_id, runs


RULES: tuple[Rule, ...] = (
    lost, stuck, twice, tokens, outcome, unrecorded, early, cancelled, changed, once, effects,
    grid, verdicts,
)  # fmt: skip
"""Every rule, the gravest first."""
