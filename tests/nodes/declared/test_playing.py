"""Schedules in virtual time: every occurrence runs or is skipped once, as nodes would do it."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.nodes.declared.findings import find
from duly.nodes.declared.playing import Outage, Played, Player, play
from duly.wheel.schedule import load

T0 = datetime(
    2026, 10, 24, 22, 0, tzinfo=UTC
)  # in Berlin the clock goes back at 01:00 UTC, 3 h later
HOUR = timedelta(hours=1)


def player(
    overrun: str = "skip", grace: float | None = None, duration_s: float = 0, name: str = "n", **fields: Any
) -> Player:  # fmt: skip
    plan = load(json.dumps(fields), T0)
    return Player(name, plan, overrun, grace, timedelta(seconds=duration_s))


def ran(events: list[Played]) -> list[tuple[float, float]]:
    """Occurrence and start of each run, in hours from the beginning."""
    return [((e.occurrence - T0) / HOUR, (e.start - T0) / HOUR) for e in events if not e.skipped]


def skipped(events: list[Played]) -> list[tuple[float, str]]:
    return [((e.occurrence - T0) / HOUR, e.skipped) for e in events if e.skipped]


def test_the_first_is_due_as_of_a_task_that_is_made_at_the_beginning() -> None:
    assert ran(list(play(player(every=3600), T0 + 3 * HOUR, None))) == [(1, 1), (2, 2)]
    cron = player(cron="0 * * * *", timezone="UTC")
    assert ran(list(play(cron, T0 + 2 * HOUR, None))) == [(0, 0), (1, 1)]


def test_a_run_that_is_too_long() -> None:
    events = list(play(player(every=3600, duration_s=5400), T0 + 6 * HOUR, None))
    assert (ran(events), skipped(events)) == (
        [(1, 1), (3, 3), (5, 5)],
        [(2, "overrun"), (4, "overrun")],
    )
    events = list(play(player("queue", every=3600, duration_s=5400), T0 + 6 * HOUR, None))
    assert (ran(events), skipped(events)) == ([(1, 1), (2, 2.5), (3, 4), (4, 5.5)], [])


@pytest.mark.parametrize(
    ("overrun", "grace", "runs", "lost"),
    [
        ("skip", None, [(1, 1), (4, 4.5), (5, 5)], [2, 3]),
        ("queue", None, [(1, 1), (2, 4.5), (3, 4.5), (4, 4.5), (5, 5)], []),
        ("skip", 600, [(1, 1), (5, 5)], [2, 3, 4]),
        ("queue", 5400, [(1, 1), (3, 4.5), (4, 4.5), (5, 5)], [2]),
    ],
)
def test_an_outage(overrun: str, grace: float | None, runs: list[Any], lost: list[int]) -> None:
    outage = Outage(T0 + 1.5 * HOUR, T0 + 4.5 * HOUR)
    events = list(play(player(overrun, grace, every=3600), T0 + 6 * HOUR, outage))
    assert (ran(events), skipped(events)) == (runs, [(n, "misfire") for n in lost])


def test_what_ends_in_an_outage_is_recorded_after_it() -> None:
    outage = Outage(T0 + 1.1 * HOUR, T0 + 3.5 * HOUR)
    events = list(play(player(every=3600, duration_s=1800), T0 + 5 * HOUR, outage))
    assert (ran(events), skipped(events)) == ([(1, 1), (4, 4)], [(2, "overrun"), (3, "overrun")])


SCHEDULES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"every": st.sampled_from([7, 60, 900, 3601])},
        optional={"jitter": st.sampled_from([1, 7]), "max_runs": st.integers(1, 30),
                  "start_at": st.just("2026-10-25T00:30:00Z"), "end_at": st.just("2026-10-25T03:00:00Z")},
    ),
    st.fixed_dictionaries(
        {"cron": st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 * * * *", "15,45 2 * * *"]),
         "timezone": st.sampled_from(["UTC", "Europe/Berlin"])},
        optional={"jitter": st.just(300), "dst": st.just({"fold": "both"}), "max_runs": st.integers(1, 30)},
    ),
)  # fmt: skip


@given(
    fields=SCHEDULES,
    overrun=st.sampled_from(["skip", "queue"]),
    grace=st.sampled_from([None, 0.0, 30.0, 4000.0]),
    duration_s=st.sampled_from([0, 1, 65, 4000]),
    outage=st.sampled_from([None, (0, 2), (1.25, 1.75), (2.5, 6)]),
)
@settings(max_examples=300, deadline=None)
def test_each_occurrence_is_run_or_skipped_once_and_none_is_left_out(
    fields: dict[str, Any],
    overrun: str,
    grace: float | None,
    duration_s: float,
    outage: tuple[float, float] | None,
) -> None:
    one = player(overrun, grace, duration_s, **fields)
    window = None if outage is None else Outage(T0 + outage[0] * HOUR, T0 + outage[1] * HOUR)
    end = T0 + 7 * HOUR
    events = list(play(one, end, window))
    starts = [event.start for event in events]
    assert starts == sorted(starts)
    told = sorted(event.occurrence for event in events)
    owed = one.plan.between(T0 - timedelta(microseconds=1), end, 100_000)
    assert told == owed[: len(told)], "the schedule's own, in its order, each once"
    runs = [event for event in events if not event.skipped]
    for before, after in pairwise(runs):
        assert before.end <= after.start
    for run in runs:
        assert run.start >= run.due >= run.occurrence
        assert window is None or not window.begin <= run.start < window.end
        assert grace is None or (run.start - run.due).total_seconds() <= grace
    if one.plan.max_runs is not None:
        assert len(runs) <= one.plan.max_runs
    elif duration_s == 0 and (window is None or window.end < end):
        rest = owed[len(told) :]
        assert all(at >= end - timedelta(seconds=300) for at in rest), (
            "but for what is put off by jitter"
        )
        if window is None:
            assert not any(event.skipped for event in events)


def test_the_findings() -> None:
    players = [
        player(name="hourly", cron="0 * * * *", timezone="UTC", duration_s=3900),
        player("queue", name="often", every=900, duration_s=60),
        player(name="nightly", cron="30 2 * * *", timezone="Europe/Berlin"),
    ]
    outage = Outage(T0 + 3.2 * HOUR, T0 + 4.2 * HOUR)
    found = find(players, T0, T0 + 8 * HOUR, outage, top=2, limit=1000)
    assert found.complete
    hourly, often, nightly = found.schedules.values()
    assert (hourly.runs, hourly.skipped, hourly.overlaps) == (4, {"overrun": 4}, 4)
    assert (often.runs, often.skipped, often.late) == (31, {}, 5)
    assert often.longest_delay_s == 0.95 * 3600
    assert nightly.runs == 1
    assert [(herd.runs, sorted(herd.names)) for herd in found.herds] == [
        (2, ["hourly", "often"]), (2, ["nightly", "often"]),
    ]  # fmt: skip
    assert found.most_at_once == 2
    assert [change.name for change in found.clock_changes] == ["nightly"]
    assert "back from 03:00 to 02:00" in found.clock_changes[0].note
    effects = {(one.name, one.overrun): one for one in found.outage}
    assert effects["often", "queue"].declared
    assert (effects["often", "queue"].due, effects["often", "queue"].run_late) == (4, 4)
    assert (effects["often", "skip"].run_late, effects["often", "skip"].skipped) == (1, 3)
    assert ("nightly", "skip") not in effects


def test_too_much_is_cut_off_and_told() -> None:
    players = [player(name=f"n{number}", every=1) for number in range(5)]
    found = find(players, T0, T0 + 1000 * HOUR, None, top=3, limit=1000)
    assert (found.complete, found.runs, len(found.herds)) == (False, 1000, 3)
    assert found.until == T0 + timedelta(seconds=201)
    assert [herd.runs for herd in found.herds] == [300, 300, 295]
    outage = Outage(T0 + 900 * HOUR, T0 + 901 * HOUR)
    assert find(players, T0, T0 + 1000 * HOUR, outage, top=3, limit=100).outage == []
