"""Periodic tasks end to end: a node, its stores, and a worker that the test moves by hand."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from store_rig import opened, query
from waiting import wait_for

from duly.actors.rezoning import rezone
from duly.nodes.client import Run, Task

FAR = "2040-01-01T00:00:00Z"


async def new(node: RunningNode, schedule: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = await node.call("POST", "/v1/tasks", {"type": "a", "schedule": schedule, **fields})
    assert answer.status == 201, answer.body
    body: dict[str, Any] = answer.body
    return body


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def runs(node: RunningNode, task_id: str) -> list[Run]:
    """Oldest first."""
    return list(reversed(await node.client.runs(task_id)))


async def set_back(node: RunningNode, task_id: str, by: timedelta) -> None:
    """As if the task had been made so much earlier, and nobody had looked at it since."""

    async def work(connection: Any) -> None:
        await connection.execute(
            "update tasks set created_at = created_at - $2::interval, "
            "occurrence = occurrence - $2, next_run_at = next_run_at - $2, "
            "following = following - $2, version = version + 1 where id = $1",
            task_id, by,
        )  # fmt: skip

    await node.context.db.run(work)


async def test_occurrences_follow_their_grid_whenever_the_runs_end(
    node: RunningNode, redis_url: str
) -> None:
    task = await new(node, {"every": 1})
    first = when(task["created_at"]) + timedelta(seconds=1)
    assert when(task["next_run_at"]) == first
    assert task["schedule"] == {"every": 1.0}
    async with HandWorker(redis_url) as worker:
        await worker.live()
        for _ in range(3):
            taken = await worker.take()
            await worker.report(taken, result='"done"')

    async def recorded() -> bool:
        return len([r for r in await runs(node, task["id"]) if r.outcome == "completed"]) == 3

    await wait_for(recorded, 60, "three runs are recorded")
    done = await runs(node, task["id"])
    assert [(r.occurrence - first) % timedelta(seconds=1) for r in done if r.occurrence] == [
        timedelta(0) for _ in done
    ]
    assert len({r.occurrence for r in done}) == len(done)
    row = (await node.call("GET", f"/v1/tasks/{task['id']}")).body
    assert (row["status"], row["retry_count"]) in {("pending", 0), ("running", 0)}


async def test_retries_belong_to_their_occurrence_and_the_next_one_begins_afresh(
    node: RunningNode, redis_url: str
) -> None:
    backoff = {"kind": "fixed", "delay": 0, "jitter": 0}
    task = await new(node, {"every": 60}, max_retries=1, backoff=backoff, delay=0)
    async with HandWorker(redis_url) as worker:
        await worker.live()
        for attempt in ("1", "2"):
            taken = await worker.take()
            assert taken.fields["attempt"] == attempt
            await worker.report(taken, "failed", error='"no"')

        async def over() -> Task | None:
            row = await node.client.get(task["id"])
            return row if row.status == "pending" and row.retry_count == 0 else None

        row = await wait_for(over, 60, "the occurrence is over")
    first = when(task["created_at"]) + timedelta(seconds=60)
    assert row.next_run_at == first + timedelta(seconds=60)
    assert row.error == "no"
    done = await runs(node, task["id"])
    assert [(r.occurrence, r.attempt, r.outcome) for r in done] == [
        (first, 1, "failed"), (first, 2, "failed"),
    ]  # fmt: skip


async def test_a_schedule_ends_after_its_runs_with_the_last_result(
    node: RunningNode, redis_url: str
) -> None:
    task = await new(node, {"every": 0.2, "max_runs": 2}, overrun="queue")
    async with HandWorker(redis_url) as worker:
        await worker.live()
        for number in range(2):
            await worker.report(await worker.take(), result=str(number))

        async def ended() -> Task | None:
            row = await node.client.get(task["id"])
            return row if row.status == "completed" else None

        row = await wait_for(ended, 60, "the schedule is over")
    assert (row.result, row.next_run_at) == (1, None)
    first = when(task["created_at"])
    assert [r.occurrence for r in await runs(node, task["id"])] == [
        first + timedelta(milliseconds=200 * n) for n in (1, 2)
    ]


async def test_a_schedule_that_ends_with_a_skipped_occurrence_has_the_result_of_its_last_run(
    node: RunningNode, redis_url: str
) -> None:
    end = datetime.now(UTC) + timedelta(hours=2, minutes=30)
    task = await new(node, {"every": 3600, "end_at": end.isoformat()}, delay=0)
    one = f"/v1/tasks/{task['id']}"
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        assert (await node.call("POST", f"{one}/pause")).status == 200
        await worker.report(taken, result='"the last"')

        async def waits() -> bool:
            return (await node.client.get(task["id"])).status == "pending"

        await wait_for(waits, 60, "the run is recorded")
    await set_back(node, task["id"], timedelta(hours=3))
    await query(
        node.context.db,
        "update tasks set schedule = jsonb_set(schedule, '{end_at}', $2) where id = $1",
        UUID(task["id"]), f'"{(end - timedelta(hours=3)).isoformat()}"',
    )  # fmt: skip
    resumed = await node.call("POST", f"{one}/resume")
    assert (resumed.status, resumed.body["status"]) == (200, "completed")
    assert [r.outcome for r in await runs(node, task["id"])] == ["completed", "skipped"]
    assert (resumed.body["result"], resumed.body["error"]) == ("the last", None)


@pytest.mark.parametrize("overrun", ["skip", "queue"])
async def test_c14_after_a_night_switched_off(
    node: RunningNode, redis_url: str, overrun: str
) -> None:
    """630 minutes: with skip one late run and the rest recorded, with queue each one in order."""
    task = await new(node, {"every": 60}, overrun=overrun)
    await set_back(node, task["id"], timedelta(minutes=630, seconds=30))
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        await worker.report(taken)
        if overrun == "queue":
            for _ in range(4):
                await worker.report(await worker.take())

        async def recorded() -> list[Run] | None:
            done = await runs(node, task["id"])
            return done if sum(r.outcome == "completed" for r in done) >= 1 else None

        done = await wait_for(recorded, 60, "it is recorded")
    occurrences = [r.occurrence for r in done if r.occurrence is not None]
    assert [b - a for a, b in pairwise(occurrences)] == [timedelta(seconds=60)] * (len(done) - 1)
    if overrun == "skip":
        skipped = [r for r in done if r.outcome == "skipped"]
        assert 629 <= len(skipped) < 640  # minutes come while we look
        assert {r.error["type"] for r in skipped} == {"misfire"}
        assert [r.outcome for r in done[len(skipped) :]] == ["completed"]
    else:
        assert {r.outcome for r in done} == {"completed"}


async def test_c14_ninety_days_of_minutes_hold_up_nobody(node: RunningNode, redis_url: str) -> None:
    task = await new(node, {"every": 60})
    await set_back(node, task["id"], timedelta(days=90, seconds=30))
    async with HandWorker(redis_url) as worker:
        await worker.live()
        others = [(await node.client.submit("b")).id for _ in range(20)]
        seen: set[str] = set()
        while not set(map(str, others)) <= seen:
            taken = await worker.take()
            seen.add(taken.id)
            await worker.report(taken)
        while task["id"] not in seen:
            taken = await worker.take(120)
            seen.add(taken.id)
            await worker.report(taken)
    counted = await node.count(f"runs where task_id = '{task['id']}' and outcome = 'skipped'")
    assert 129_599 <= counted < 129_610  # minutes come while we look


async def test_the_misfire_grace_skips_what_is_later(node: RunningNode) -> None:
    task = await new(node, {"every": 3600}, misfire_grace=60)
    await set_back(node, task["id"], timedelta(hours=1, minutes=30))

    async def skipped() -> list[Run]:
        return await runs(node, task["id"])

    (run,) = await wait_for(skipped, 60, "it is skipped")
    assert (run.outcome, run.error["type"]) == ("skipped", "misfire")
    row = await node.client.get(task["id"])
    assert (row.status, row.next_run_at) == ("pending", run.occurrence + timedelta(hours=1))  # type: ignore[operator]


async def test_c12_a_new_owner_starts_from_what_is_stored(
    fresh_database: str, redis_url: str
) -> None:
    """The owner is gone before an occurrence, and the next one comes after it: it runs late, once."""
    every_minute = {"cron": "* * * * *"}
    async with running_node(fresh_database, redis_url) as node:
        task = await new(node, every_minute, overrun="queue")
        assert (await node.call("POST", f"/v1/tasks/{task['id']}/pause")).status == 200
        await set_back(node, task["id"], timedelta(minutes=1))
        async with opened(fresh_database) as db:
            await query(db, "update tasks set paused = false")  # as if nobody had looked at it
            missed = (await query(db, "select occurrence from tasks"))[0][0]
            await query(db, "update slots set owner = null")
    async with (
        running_node(fresh_database, redis_url) as node,
        HandWorker(redis_url) as worker,
    ):
        await worker.live(120_000)
        await worker.report(await worker.take(60))

        async def recorded() -> list[Run] | None:
            done = await runs(node, task["id"])
            return done if any(r.outcome == "completed" for r in done) else None

        done = await wait_for(recorded, 30, "it is recorded")
        assert [(r.occurrence, r.outcome) for r in done] == [(missed, "completed")]
        row = await node.client.get(task["id"])
        assert row.next_run_at == missed + timedelta(minutes=1)


async def test_c28_a_worker_and_its_node_die_in_mid_run(
    fresh_database: str, redis_url: str
) -> None:
    """The run is lost and retried, or given up; either way the schedule goes on."""
    async with HandWorker(redis_url) as worker:
        async with running_node(fresh_database, redis_url) as node:
            await worker.live()
            task = await new(node, {"every": 1}, max_retries=0)
            taken = await worker.take()
        await worker.die()
        async with running_node(fresh_database, redis_url) as node:
            async with HandWorker(redis_url, "other") as other:
                await other.live()
                again = await other.take(120)
                assert again.id == task["id"]
                assert again.fields["due"] != taken.fields["due"]
                await other.report(again)
            done = await runs(node, task["id"])
    assert done[0].outcome == "lost"
    assert {r.outcome for r in done[1:]} <= {"skipped", "completed"}


# Pause, resume, run now


async def test_a_paused_task_is_not_run_and_skips_what_came_due(
    node: RunningNode, redis_url: str
) -> None:
    task = await new(node, {"every": 3600})
    one = f"/v1/tasks/{task['id']}"
    paused = await node.call("POST", f"{one}/pause")
    assert (paused.status, paused.body["paused"], paused.body["version"]) == (200, True, 1)
    assert (await node.call("POST", f"{one}/pause")).body["version"] == 1
    assert (await node.call("POST", f"{one}/run-now")).status == 409
    await set_back(node, task["id"], timedelta(hours=2, minutes=30))
    resumed = await node.call("POST", f"{one}/resume")
    assert (resumed.status, resumed.body["paused"]) == (200, False)
    assert (await node.call("POST", f"{one}/resume")).body["version"] == resumed.body["version"]
    done = await runs(node, task["id"])
    assert [(r.outcome, r.error["type"]) for r in done] == [("skipped", "paused")] * 2
    assert when(resumed.body["next_run_at"]) == done[-1].occurrence + timedelta(hours=1)  # type: ignore[operator]


async def test_a_one_off_that_came_due_in_its_pause_runs_at_its_end(
    node: RunningNode, redis_url: str
) -> None:
    task = await node.client.submit("a", delay=3600)
    assert (await node.call("POST", f"/v1/tasks/{task.id}/pause")).status == 200
    await node.call("PATCH", f"/v1/tasks/{task.id}", {"delay": 0})
    async with HandWorker(redis_url) as worker:
        await worker.live()
        ahead = await node.client.submit("b")
        assert (await worker.take()).id == str(ahead.id)
        assert (await node.client.get(task.id)).status == "pending"
        assert (await node.call("POST", f"/v1/tasks/{task.id}/resume")).status == 200
        assert (await worker.take()).id == str(task.id)


async def test_a_running_task_may_be_paused_and_goes_on(node: RunningNode, redis_url: str) -> None:
    task = await new(node, {"every": 3600}, delay=0)
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        one = f"/v1/tasks/{task['id']}"
        paused = await node.call("POST", f"{one}/pause")
        assert (paused.body["status"], paused.body["paused"]) == ("running", True)
        await worker.report(taken)
        await worker.nothing_left()
    row = await node.client.get(task["id"])
    assert (row.status, row.paused) == ("pending", True)
    assert [r.outcome for r in await runs(node, task["id"])] == ["completed"]


async def test_run_now_runs_once_more_and_keeps_the_grid(node: RunningNode, redis_url: str) -> None:
    task = await new(node, {"every": 3600})
    one = f"/v1/tasks/{task['id']}"
    answer = await node.call("POST", f"{one}/run-now")
    assert answer.status == 200
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        assert (await node.call("POST", f"{one}/run-now")).status == 409
        await worker.report(taken)
        await worker.nothing_left()
    row = await node.client.get(task["id"])
    assert row.next_run_at == when(task["next_run_at"])
    (run,) = await runs(node, task["id"])
    assert run.occurrence is not None
    assert run.occurrence < row.next_run_at
    async with HandWorker(redis_url) as worker:
        await worker.live()
        far = await node.client.submit("b", run_at=FAR)
        assert (await node.call("POST", f"/v1/tasks/{far.id}/run-now")).status == 200
        assert (await worker.take()).id == str(far.id)


async def test_calls_that_the_state_does_not_allow(node: RunningNode) -> None:
    gone = await new(node, {"every": 60})
    await node.client.cancel(gone["id"])
    for call in ("pause", "resume", "run-now"):
        answer = await node.call("POST", f"/v1/tasks/{gone['id']}/{call}")
        assert (answer.status, answer.body["task"]["status"]) == (409, "cancelled")
        missing = "01a22874-fa51-7000-86ce-4470e453b787"
        assert (await node.call("POST", f"/v1/tasks/{missing}/{call}")).status == 404


# Changes


async def test_another_schedule_goes_on_after_now(node: RunningNode) -> None:
    task = await new(node, {"every": 3600})
    one = f"/v1/tasks/{task['id']}"
    start = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    changed = await node.call(
        "PATCH", one, {"schedule": {"every": 60, "start_at": start.isoformat()}, "overrun": "queue"}
    )
    assert changed.status == 200
    assert when(changed.body["next_run_at"]) == start
    assert (changed.body["overrun"], changed.body["version"]) == ("queue", 1)
    cron = await node.call(
        "PATCH", one, {"schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}}
    )
    assert cron.body["schedule"] == {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    assert when(cron.body["next_run_at"]) > datetime.now(UTC)
    same = await node.call("PATCH", one, {"schedule": cron.body["schedule"]})
    assert same.body["next_run_at"] == cron.body["next_run_at"]
    moved = await node.call("PATCH", one, {"run_at": FAR})
    assert when(moved.body["next_run_at"]) == when(FAR)
    assert await runs(node, task["id"]) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"schedule": {"every": 0}}, "schedule.every"),
        ({"schedule": {"cron": "0 0 30 2 *"}}, "schedule.cron"),
        ({"schedule": {"every": 1, "max_runs": 0}}, "schedule.max_runs"),
        ({"schedule": None}, "schedule"),
        ({"overrun": "both"}, "overrun"),
    ],
)
async def test_wrong_changes(node: RunningNode, body: dict[str, Any], field: str) -> None:
    task = await new(node, {"every": 3600})
    answer = await node.call("PATCH", f"/v1/tasks/{task['id']}", body)
    assert (answer.status, answer.fields) == (422, [field])
    if body["schedule" if "schedule" in body else "overrun"] is not None:
        refused = await node.call("POST", "/v1/tasks", {"type": "a", **body})
        assert (refused.status, refused.fields) == (422, [field])


async def test_a_one_off_stays_one(node: RunningNode) -> None:
    task = await node.client.submit("a", run_at=FAR)
    answer = await node.call("PATCH", f"/v1/tasks/{task.id}", {"schedule": {"every": 60}})
    assert (answer.status, answer.fields) == (422, ["schedule"])


async def test_a_schedule_may_change_while_it_runs(node: RunningNode, redis_url: str) -> None:
    task = await new(node, {"every": 3600}, delay=0)
    one = f"/v1/tasks/{task['id']}"
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        assert (await node.call("PATCH", one, {"priority": 1})).status == 409
        assert (await node.call("PATCH", one, {"overrun": "queue", "priority": 1})).status == 409
        for change in ({"schedule": {"every": 7200}}, {"overrun": "queue"}, {"misfire_grace": 5}):
            answer = await node.call("PATCH", one, change)
            assert (answer.status, answer.body["status"]) == (200, "running")
            assert str(answer.body["version"]) == taken.fields["token"]
        await worker.report(taken)
        await worker.nothing_left()
    row = await node.client.get(task["id"])
    assert (row.status, row.overrun, row.misfire_grace) == ("pending", "queue", 5)
    first = when(task["created_at"]) + timedelta(hours=1)
    assert row.next_run_at == first + timedelta(hours=1)


async def test_what_came_due_before_a_change_in_mid_run_is_recorded_and_the_run_counts(
    node: RunningNode, redis_url: str
) -> None:
    task = await new(node, {"every": 1}, overrun="queue")
    one = f"/v1/tasks/{task['id']}"
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        third = when(task["created_at"]) + timedelta(seconds=3)

        async def has_come() -> bool:
            return datetime.now(UTC) > third

        await wait_for(has_come, 60, "two more came due")
        for schedule in ({"every": 7}, {"every": 3600, "max_runs": 2}):
            assert (await node.call("PATCH", one, {"schedule": schedule})).status == 200
        changed_at = datetime.now(UTC)
        await worker.report(taken)
        await worker.nothing_left()

    async def recorded() -> bool:
        return any(run.outcome == "completed" for run in await runs(node, task["id"]))

    await wait_for(recorded, 60, "the run is recorded")
    done = await runs(node, task["id"])
    replaced = [r for r in done if r.outcome == "skipped"]
    assert {r.error["type"] for r in replaced if r.error} == {"replaced"}
    first = when(task["created_at"]) + timedelta(seconds=1)
    assert sorted(r.occurrence - first for r in done if r.occurrence)[:3] == [
        timedelta(seconds=n) for n in range(3)
    ]
    [ran] = await query(
        node.context.db, "select runs_done from tasks where id = $1", UUID(task["id"])
    )
    assert ran["runs_done"] == 1
    next_run = (await node.client.get(task["id"])).next_run_at
    assert next_run is not None
    assert next_run > changed_at


async def test_changes_in_mid_run_record_thousands_that_were_owed_once(
    node: RunningNode, redis_url: str
) -> None:
    task = await new(node, {"every": 1}, delay=0)
    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        await query(
            node.context.db,
            "update tasks set created_at = created_at - interval '1 hour', "
            "occurrence = occurrence - interval '1 hour' where id = $1",
            UUID(task["id"]),
        )
        schedules = [{"every": 1, "max_runs": 10 + n} for n in range(3)]
        changes = [
            node.call("PATCH", f"/v1/tasks/{task['id']}", {"schedule": one}) for one in schedules
        ]
        assert [answer.status for answer in await asyncio.gather(*changes)] == [200, 200, 200]
        await worker.report(taken)

        async def recorded() -> list[Run] | None:
            done = await runs(node, task["id"])
            return done if any(run.outcome == "completed" for run in done) else None

        done = await wait_for(recorded, 60, "the run is recorded")
    seen = sorted(run.occurrence for run in done if run.occurrence)
    assert len(seen) >= 3600
    assert {later - one for one, later in pairwise(seen)} == {timedelta(seconds=1)}


async def test_c15_many_registrations_make_one_schedule(node: RunningNode) -> None:
    """The same key, at the same time and again: one row, and its phase stays."""
    body = {"type": "a", "schedule": {"every": 3600}, "idempotency_key": "nightly"}
    answers = await asyncio.gather(*(node.call("POST", "/v1/tasks", body) for _ in range(20)))
    answers += [await node.call("POST", "/v1/tasks", body) for _ in range(10)]
    assert sorted(answer.status for answer in answers) == [200] * 29 + [201]
    assert len({(answer.body["id"], answer.body["next_run_at"]) for answer in answers}) == 1
    assert await node.count() == 1


async def test_c11_newer_zone_data_move_what_waits(fresh_database: str, redis_url: str) -> None:
    """Computed with 2025b, Vancouver's 9:00 was 17:00Z; since 2026f it is 16:00Z."""
    async with running_node(fresh_database, redis_url) as node:
        zone = {
            "cron": "0 9 * * *",
            "timezone": "America/Vancouver",
            "start_at": "2030-01-10T00:00:00Z",
        }
        task = await new(node, zone)
        assert when(task["next_run_at"]) == when("2030-01-10T16:00:00Z")
        async with opened(fresh_database) as db:
            await query(
                db, "update tasks set zone_data = '2025b', occurrence = $1, next_run_at = $1",
                when("2030-01-10T17:00:00Z"),
            )  # fmt: skip
        assert await rezone(node.context) == 1
        assert await rezone(node.context) == 0
        row = await node.client.get(task["id"])
        assert row.next_run_at == when("2030-01-10T16:00:00Z")
