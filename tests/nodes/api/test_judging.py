"""Which reasons follow from which facts, in which order, and what they say."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.actors.ownership import Owner
from duly.nodes.api.facts import Facts, RateNow, Trouble
from duly.nodes.api.judging import judge
from duly.nodes.api.reasons import WaitingForKey
from duly.storage.explain import Ahead, Standing
from duly.storage.permits import Rate
from duly.storage.sight import Liveness, QueueSight, Worker

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
AGO = NOW - timedelta(minutes=5)
LATER = NOW + timedelta(hours=2)
LIVE = Worker("w", 3, 1.25, Liveness(concurrency=10))
DEAD = Worker("w", 3, 25.0, None)
OWNED = Owner("node-a")
NOBODY = Owner(None, "node-b", AGO)
FREE = QueueSight(0, [LIVE], False, None, 0)
FULL = QueueSight(100, [LIVE], False, None, 0)
NONE_AHEAD = Ahead(0, True)
REDIS = Trouble(AGO, "no answer")


def pending(**changes: Any) -> Standing:
    """Due five minutes ago, never tried."""
    plain = Standing(
        status="pending", queue="q", paused=False, paused_by=None, paused_at=None, next_run_at=AGO,
        slot=7, owner=None, version=0, retry_count=0, max_retries=3, begun=False, priority=5,
        claimed_at=None, started_at=None, worker=None, finished_at=None, slot_owner="node-a",
        free_since=None, queue_paused=None, queue_paused_by=None, queue_paused_at=None,
        rate=None, burst=None, max_in_flight=None, concurrency_key=None, concurrency_limit=None,
    )  # fmt: skip
    return plain._replace(**changes)


def running(**changes: Any) -> Standing:
    """Claimed five minutes ago."""
    return pending(status="running", owner="node-a", claimed_at=AGO, version=1, **changes)


def facts(task: Standing, **changes: Any) -> Facts:
    """Nothing holds it, unless `changes` say so."""
    plain = Facts(NOW, task, 100, slot=OWNED, queue=FREE, ahead=NONE_AHEAD)
    return plain._replace(**changes)


PACE = Rate(20.0, 3)
KEYED = {"concurrency_key": "k", "concurrency_limit": 2}
HOLDERS = [UUID(int=n) for n in range(1, 13)]

PAUSED = {"paused": True, "paused_by": "anna", "paused_at": AGO}
QUEUE_PAUSED = {"queue_paused": True, "queue_paused_by": "ben", "queue_paused_at": AGO}
RETRY = {"next_run_at": LATER, "begun": True, "retry_count": 2}
WAITS = QueueSight(12, [LIVE], True, None, 0)
HELD = QueueSight(12, [LIVE], True, "w", 60.0)
FORSAKEN = QueueSight(12, [DEAD], True, "w", 60.0)
AWAY: dict[str, Any] = {"redis": REDIS, "queue": None, "slot": None}

CASES: list[tuple[Facts, list[str]]] = [
    (facts(pending(status="completed", finished_at=AGO)), ["finished"]),
    (facts(pending()), ["due_now"]),
    (facts(pending(next_run_at=NOW)), ["due_now"]),
    (facts(pending(next_run_at=LATER)), ["not_due"]),
    (facts(pending(**RETRY)), ["backoff"]),
    (facts(pending(**RETRY | {"retry_count": 0})), ["not_due"]),  # snoozed
    (facts(pending(**RETRY | {"next_run_at": AGO})), ["due_now"]),
    (facts(pending(**RETRY, given_back="no key")), ["given_back"]),
    (facts(pending(**RETRY | {"next_run_at": AGO}, given_back="no key")), ["due_now"]),
    (facts(pending(**PAUSED)), ["paused"]),
    (facts(pending(next_run_at=LATER, **PAUSED)), ["paused", "not_due"]),
    (facts(pending(**QUEUE_PAUSED)), ["queue_paused"]),
    (facts(pending(next_run_at=LATER, **QUEUE_PAUSED)), ["not_due", "queue_paused"]),
    (facts(pending(queue_paused=False)), ["due_now"]),
    (facts(pending(), slot=NOBODY), ["slot_unowned"]),
    (facts(pending(), queue=FREE._replace(workers=[])), ["no_worker"]),
    (facts(pending(), queue=FREE._replace(workers=[DEAD])), ["no_worker"]),
    (facts(pending(), queue=FULL), ["waiting_for_capacity"]),
    (facts(pending(next_run_at=LATER), queue=FULL), ["not_due"]),
    (facts(pending(), queue=FULL._replace(backlog=99)), ["due_now"]),  # a room of 1, and 1 waits
    (facts(pending(), queue=FULL._replace(backlog=99), ahead=Ahead(1, True)), ["waiting_for_capacity"]),
    (facts(pending(), queue=FULL._replace(backlog=75), ahead=Ahead(9000, True)), ["due_now"]),
    (facts(pending(), queue=FULL._replace(workers=[])), ["no_worker", "waiting_for_capacity"]),
    (facts(pending(max_in_flight=5), in_flight=4), ["due_now"]),
    (facts(pending(max_in_flight=5), in_flight=5), ["waiting_for_in_flight"]),
    (facts(pending(max_in_flight=5, next_run_at=LATER)), ["not_due"]),
    (
        facts(
            pending(**KEYED, max_in_flight=5), holders=HOLDERS[:2], in_flight=5,
            rate=RateNow(PACE, 0.5), queue=FULL,
        ),
        ["waiting_for_key", "waiting_for_in_flight", "waiting_for_rate", "waiting_for_capacity"],
    ),
    (facts(pending(**KEYED)), ["due_now"]),
    (facts(pending(**KEYED), holders=HOLDERS[:1]), ["due_now"]),
    (facts(pending(**KEYED), holders=HOLDERS[:2]), ["waiting_for_key"]),
    (facts(pending(**KEYED, next_run_at=LATER), holders=HOLDERS[:2]), ["not_due"]),
    (facts(pending(), rate=RateNow(PACE, 0.5)), ["waiting_for_rate"]),
    (facts(pending(), rate=RateNow(PACE, 0)), ["due_now"]),
    (facts(pending(), rate=RateNow(PACE, 0), ahead=Ahead(3, True)), ["due_now"]),
    (facts(pending(), rate=RateNow(PACE, 0), ahead=Ahead(4, True)), ["waiting_for_rate"]),
    (facts(pending(next_run_at=LATER), rate=RateNow(PACE, 0.5)), ["not_due"]),
    (
        facts(pending(), rate=RateNow(PACE, 0.5), queue=FULL),
        ["waiting_for_rate", "waiting_for_capacity"],
    ),
    (facts(pending(), **AWAY), ["redis_unreachable"]),
    (facts(pending(), redis=REDIS), ["redis_unreachable"]),  # it answers, and takes no writes
    (facts(pending(next_run_at=LATER), **AWAY), ["not_due", "redis_unreachable"]),
    (facts(pending(), broken="WRONGTYPE", queue=None), ["queue_unusable"]),
    (
        facts(pending(**PAUSED, **QUEUE_PAUSED), slot=NOBODY, queue=FULL._replace(workers=[])),
        ["paused", "slot_unowned", "queue_paused", "no_worker", "waiting_for_capacity"],
    ),
    (facts(running(), queue=WAITS), ["in_stream"]),
    (facts(running(), queue=WAITS._replace(workers=[])), ["no_worker", "in_stream"]),
    (facts(running(), queue=HELD), ["running"]),
    (facts(running(), queue=FORSAKEN), ["running"]),
    (facts(running(**PAUSED), queue=HELD), ["running", "paused"]),
    (facts(running()), ["claimed"]),
    (facts(running(), slot=NOBODY), ["slot_unowned", "claimed"]),
    (facts(running(), redis=REDIS), ["redis_unreachable", "claimed"]),
    (facts(running(), **AWAY), ["redis_unreachable", "claimed"]),
    (facts(running(worker="w", started_at=AGO), **AWAY), ["redis_unreachable", "running"]),
]  # fmt: skip


@pytest.mark.parametrize(("known", "codes"), CASES)
def test_reasons_in_order(known: Facts, codes: list[str]) -> None:
    found = judge(known)
    assert [msgspec.to_builtins(one)["code"] for one in found] == codes
    for one in found:
        assert one.message.endswith(".")
        assert "None" not in one.message


def the(known: Facts) -> dict[str, Any]:
    """The first reason, as JSON has it."""
    found: dict[str, Any] = msgspec.to_builtins(judge(known)[0], builtin_types=(datetime,))
    return found


SAYINGS: list[tuple[Facts, str]] = [
    (
        facts(pending(status="failed", finished_at=AGO)),
        "It has ended: failed at 2026-11-30 02:55:00 UTC (5 min ago).",
    ),
    (facts(pending(next_run_at=LATER)), "It is not due before 2026-11-30 05:00:00 UTC (in 2 h)."),
    (
        facts(pending(**RETRY)),
        "Attempt 2 of 4 failed; the next one begins at 2026-11-30 05:00:00 UTC (in 2 h).",
    ),
    (
        facts(pending(next_run_at=LATER, given_back="no handler for its type")),
        (
            "A worker gave it back: no handler for its type; it comes again at 2026-11-30 05:00:00 UTC "
            "(in 2 h)."
        ),
    ),
    (
        facts(pending(**PAUSED)),
        (
            "It was paused by anna at 2026-11-30 02:55:00 UTC (5 min ago): it does not begin until it is "
            "resumed."
        ),
    ),
    (facts(pending(paused=True)), "It is paused: it does not begin until it is resumed."),
    (
        facts(pending(**QUEUE_PAUSED)),
        (
            "Its queue, q, was paused by ben at 2026-11-30 02:55:00 UTC (5 min ago): nothing of it is "
            "fired until it is resumed."
        ),
    ),
    (
        facts(pending(), slot=NOBODY),
        (
            "No node has owned its slot 7 (last owner: node-b) since 2026-11-30 02:55:00 UTC "
            "(5 min ago): it fires when one takes it over."
        ),
    ),
    (
        facts(pending(), slot=Owner(None)),
        "No node owns its slot 7 now: it fires when one takes it over.",
    ),
    (facts(pending(), queue=FREE._replace(workers=[])), "No live worker takes queue q."),
    (
        facts(pending(), queue=FULL, ahead=Ahead(1, True)),
        "100 tasks of queue q wait for its 1 worker already, of at most 100; 1 task goes before it.",
    ),
    (
        facts(pending(), queue=FULL, ahead=Ahead(51_200, False)),
        (
            "100 tasks of queue q wait for its 1 worker already, of at most 100; at least 51200 tasks go "
            "before it."
        ),
    ),
    (
        facts(pending(**KEYED), holders=HOLDERS[:2]),
        (
            "2 running tasks hold its concurrency key k, and no more than 2 may: "
            "00000000-0000-0000-0000-000000000001, 00000000-0000-0000-0000-000000000002."
        ),
    ),
    (
        facts(pending(max_in_flight=5), in_flight=6),
        "6 tasks of queue q run, and no more than 5 may.",
    ),
    (
        facts(pending(), rate=RateNow(PACE, 300.0), ahead=Ahead(2, True)),
        (
            "Queue q is held to 20 tasks a second: the next one may go at 2026-11-30 03:05:00 UTC (in "
            "5 min), and 2 tasks go before it."
        ),
    ),
    (
        facts(pending(), **AWAY),
        (
            "Redis has not worked for this node since 2026-11-30 02:55:00 UTC (5 min ago): no answer; "
            "nothing is fired without it."
        ),
    ),
    (
        facts(pending()),
        (
            "Nothing holds it: it came due at 2026-11-30 02:55:00 UTC (5 min ago), and node node-a is "
            "about to fire it; no tasks go before it."
        ),
    ),
    (
        facts(pending(), failing=["redis", "postgres"], ahead=Ahead(1, True)),
        (
            "Nothing holds it: it came due at 2026-11-30 02:55:00 UTC (5 min ago), and node node-a is "
            "about to fire it; 1 task goes before it. The node says that its work with redis and "
            "postgres fails."
        ),
    ),
    (
        facts(running(), queue=WAITS),
        (
            "Node node-a fired it at 2026-11-30 02:55:00 UTC (5 min ago); it waits in the stream of queue "
            "q, where 12 tasks wait for 1 live worker."
        ),
    ),
    (
        facts(running(), queue=HELD),
        (
            "Worker w has had it since 2026-11-30 02:59:00 UTC (1 min ago); the worker was last heard of "
            "1.2 s ago."
        ),
    ),
    (
        facts(running(started_at=AGO), queue=FORSAKEN),
        (
            "Worker w has had it since 2026-11-30 02:55:00 UTC (5 min ago); the worker was last heard of "
            "25 s ago and counts as lost: the task is taken from it within seconds."
        ),
    ),
    (
        facts(running()),
        (
            "Node node-a claimed it at 2026-11-30 02:55:00 UTC (5 min ago) and it is in no stream now: it "
            "is about to be published, or its outcome to be recorded; if neither, it is published again "
            "within seconds."
        ),
    ),
]


@pytest.mark.parametrize(("known", "message"), SAYINGS)
def test_what_reasons_say(known: Facts, message: str) -> None:
    assert the(known)["message"] == message


def test_facts_stand_beside_the_words() -> None:
    said = the(facts(pending(), queue=FULL, ahead=Ahead(4, False)))
    del said["message"]
    assert said == {
        "code": "waiting_for_capacity", "queue": "q", "window": 100, "backlog": 100, "workers": 1,
        "ahead": 4, "ahead_exact": False,
    }  # fmt: skip
    said = the(facts(running(), queue=HELD))
    assert (said["worker"], said["silent_s"]) == ("w", 1.25)
    assert said["since"] == NOW - timedelta(minutes=1)


def test_of_many_holders_ten_are_named() -> None:
    keyed = pending(concurrency_key="k", concurrency_limit=12)
    (reason,) = judge(facts(keyed, holders=HOLDERS))
    assert isinstance(reason, WaitingForKey)
    assert (reason.running, reason.holders) == (12, HOLDERS[:10])
    assert reason.message.endswith("0a, ….")


def test_many_workers_make_a_larger_window() -> None:
    crew = [LIVE._replace(id=f"w{n}", says=Liveness(concurrency=40)) for n in range(5)]
    crowd = FULL._replace(workers=crew)
    assert the(facts(pending(), queue=crowd))["code"] == "due_now"
    full = the(facts(pending(), queue=crowd._replace(backlog=400)))
    assert (full["code"], full["window"], full["workers"]) == ("waiting_for_capacity", 400, 5)
