"""Bulk actions: a look first, then a job that any node carries out."""

import asyncio
from datetime import timedelta
from typing import Any

import anyio
import pytest
from node_rig import RunningNode, running_node
from redis.asyncio import Redis
from store_rig import query
from waiting import wait_for

from duly.nodes.bulk import runner
from duly.nodes.bulk.acts import Acts
from duly.storage import bulk
from duly.storage.tasks import TaskRow
from duly.wheel.durations import from_us, parse_time

FAR = "2040-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LOOK_EVERY_S", 0.1)


async def submitted(node: RunningNode, count: int, **options: Any) -> list[str]:
    batch = {"tasks": [{"type": "a", "run_at": FAR, **options} for _ in range(count)]}
    answer = await node.call("POST", "/v1/tasks/batch", batch)
    assert answer.status == 201, answer
    ids: list[str] = answer.body["ids"]
    return ids


async def begun(node: RunningNode, action: str, where: dict[str, Any], **more: Any) -> Any:
    answer = await node.call("POST", "/v1/bulk", {"action": action, "filter": where, **more})
    assert answer.status == 202, answer
    assert answer.headers["Location"] == f"/v1/bulk/{answer.body['id']}"
    return answer.body


async def ended(node: RunningNode, job_id: str) -> Any:
    async def over() -> Any:
        job = (await node.call("GET", f"/v1/bulk/{job_id}")).body
        return job if job["finished_at"] is not None else None

    return await wait_for(over, 60, "the job has ended")


async def statuses(node: RunningNode, ids: list[str]) -> set[str]:
    return {(await node.call("GET", f"/v1/tasks/{one}")).body["status"] for one in ids}


async def test_a_dry_run_counts_and_shows_some_and_changes_nothing(node: RunningNode) -> None:
    ids = await submitted(node, 15, queue="old")
    await submitted(node, 3)
    body = {"action": "cancel", "filter": {"queue": "old"}, "dry_run": True}
    answer = await node.call("POST", "/v1/bulk", body)
    assert (answer.status, answer.body["count"], answer.body["exact"]) == (200, 15, True)
    assert [one["id"] for one in answer.body["sample"]] == ids[:4:-1]
    assert await statuses(node, ids) == {"pending"}
    assert (await node.call("GET", "/v1/bulk")).body["items"] == []


async def test_a_cancel_takes_all_that_fit_and_nothing_else(node: RunningNode) -> None:
    old = await submitted(node, 25, queue="old")
    other = await submitted(node, 3, queue="other")
    job = await begun(node, "cancel", {"queue": "old"})
    assert (job["status"], job["total"], job["exact"], job["done"]) == ("running", 25, True, 0)
    job = await ended(node, job["id"])
    assert (job["status"], job["done"], job["refused"], job["error"]) == ("done", 25, 0, None)
    assert await statuses(node, old) == {"cancelled"}
    assert await statuses(node, other) == {"pending"}
    notes = (await node.call("GET", "/v1/audit?action=bulk")).body["items"]
    assert [note["details"]["count"] for note in notes] == [25]
    assert notes[0]["details"]["filter"] == {"queue": "old"}
    each = (await node.call("GET", "/v1/audit?action=cancel")).body["items"]
    assert {note["task_id"] for note in each} == set(old)
    assert {note["details"]["bulk"] for note in each} == {job["id"]}


async def test_what_is_added_here_does_not_wait_for_the_next_look(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_LOOK_EVERY_S", 3600.0)
    async with running_node(fresh_database, redis_url) as node:
        for queue in ("one", "two"):
            ids = await submitted(node, 3, queue=queue)
            job = await begun(node, "cancel", {"queue": queue})
            assert (await ended(node, job["id"]))["status"] == "done"
            assert await statuses(node, ids) == {"cancelled"}


async def test_a_running_task_is_cancelled_in_redis_too(node: RunningNode, redis_url: str) -> None:
    task = await node.running_task("a", queue="old")
    async with Redis.from_url(redis_url) as redis:

        async def token() -> Any:
            return await redis.hget("duly:{old}:inflight", str(task.id))

        await wait_for(token, 30, "it is in flight")
        await ended(node, (await begun(node, "cancel", {"queue": "old"}))["id"])
        assert int(await token() or 1 << 62) > task.version
    report = {"token": task.version, "outcome": "completed"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", report)).status == 409


async def test_pause_and_resume_and_reschedule(node: RunningNode) -> None:
    ids = await submitted(node, 12, tags={"team": "a"})
    where = {"tag": "team:a"}
    job = await ended(node, (await begun(node, "pause", where))["id"])
    assert (job["done"], job["refused"]) == (12, 0)
    paused = (await node.call("GET", "/v1/tasks?paused=true")).body["items"]
    assert len(paused) == 12
    again = await begun(node, "pause", where)
    assert again["total"] == 0  # they are paused
    job = await ended(node, (await begun(node, "resume", {**where, "paused": True}))["id"])
    assert job["done"] == 12
    later = from_us(node.context.clock.now_us()) + timedelta(hours=3)
    job = await begun(node, "reschedule", where, run_at=later.isoformat())
    assert parse_time(job["run_at"]) == later
    assert (await ended(node, job["id"]))["done"] == 12
    for one in ids:
        task = (await node.call("GET", f"/v1/tasks/{one}")).body
        assert (task["paused"], parse_time(task["next_run_at"])) == (False, later)


async def test_failed_tasks_are_retried_once(node: RunningNode) -> None:
    tasks = [await node.running_task("b", max_retries=0) for _ in range(3)]
    for task in tasks:
        body = {"token": task.version, "outcome": "failed", "error": "no"}
        assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
    job = await ended(node, (await begun(node, "retry", {"type": "b"}))["id"])
    assert (job["total"], job["done"]) == (3, 3)
    assert await statuses(node, [str(task.id) for task in tasks]) <= {"pending", "running"}


def held(monkeypatch: pytest.MonkeyPatch) -> tuple[anyio.Event, anyio.Event]:
    """Have jobs wait before they change a task: one event tells of it, the other lets them go on."""
    act, at_work, go_on = Acts.act, anyio.Event(), anyio.Event()

    async def hold(self: Acts, row: TaskRow) -> bool:
        at_work.set()
        await go_on.wait()
        return await act(self, row)

    monkeypatch.setattr(Acts, "act", hold)
    return at_work, go_on


async def test_what_is_submitted_after_the_job_began_is_not_touched(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At this rate the first page has two tasks, so that the newer ones come into later ones: the job does not
    # go on before they are there.
    at_work, go_on = held(monkeypatch)
    looked: list[str] = []
    concerns = Acts.concerns

    def noted(self: Acts, row: TaskRow) -> bool:
        looked.append(str(row.id))
        return concerns(self, row)

    monkeypatch.setattr(Acts, "concerns", noted)
    await submitted(node, 4, queue="old")
    job = await begun(node, "cancel", {"queue": "old"}, rate=2)
    with anyio.fail_after(60):
        await at_work.wait()
    low = "00000000-0000-0000-0000-00000000000"  # below the place at which the job is
    late = [f"{low}{n}" for n in range(3)]
    batch = [{"type": "a", "queue": "old", "id": one, "run_at": FAR} for one in late]
    assert (await node.call("POST", "/v1/tasks/batch", {"tasks": batch})).status == 201
    go_on.set()
    assert (await ended(node, job["id"]))["done"] == 4
    assert set(late) <= set(looked), "the job has not come by them"
    assert await statuses(node, late) == {"pending"}


@pytest.mark.parametrize("schedule", [None, {"every": 3600}])
async def test_what_has_begun_since_it_was_found_waiting_is_not_broken_off(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, schedule: dict[str, int] | None
) -> None:
    at_work, go_on = held(monkeypatch)
    waiting, begins = await submitted(node, 2, queue="old", schedule=schedule)
    job = await begun(node, "cancel", {"queue": "old", "status": "pending"})
    with anyio.fail_after(60):
        await at_work.wait()
    assert (await node.call("POST", f"/v1/tasks/{begins}/run-now")).status == 200

    async def running() -> bool:
        return await statuses(node, [begins]) == {"running"}

    await wait_for(running, 60, "it has begun")
    go_on.set()
    job = await ended(node, job["id"])
    assert (job["done"], job["refused"]) == (1, 1)
    assert await statuses(node, [waiting]) == {"cancelled"}
    assert await statuses(node, [begins]) == {"running"}


async def test_what_has_changed_since_so_that_the_filter_would_not_find_it_is_not_cancelled(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, go_on = held(monkeypatch)
    asked = {"type": "a", "run_at": FAR, "tags": {"team": "a"}}
    batch = [asked] * 4 + [asked | {"schedule": {"every": 3600}}] * 2
    ids = (await node.call("POST", "/v1/tasks/batch", {"tasks": batch})).body["ids"]
    as_it_was, retagged, put_off, earlier, periodic, retagged_too = ids
    due = {"due_after": "2039-01-01T00:00:00Z", "due_before": "2041-01-01T00:00:00Z"}
    job = await begun(node, "cancel", {"tag": "team:a", **due})
    with anyio.fail_after(60):
        await at_work.wait()
    changes: list[tuple[str, dict[str, Any]]] = [
        (retagged, {"tags": {"team": "b"}}), (retagged_too, {"tags": {}}),
        (put_off, {"run_at": "2042-01-01T00:00:00Z"}), (earlier, {"run_at": "2038-01-01T00:00:00Z"}),
        (as_it_was, {"priority": 9, "tags": {"team": "a", "more": "b"}}),
    ]  # fmt: skip
    for one, change in changes:
        assert (await node.call("PATCH", f"/v1/tasks/{one}", change)).status == 200
    go_on.set()
    job = await ended(node, job["id"])
    assert await statuses(node, [as_it_was, periodic]) == {"cancelled"}
    assert await statuses(node, [retagged, put_off, earlier, retagged_too]) == {"pending"}
    assert (job["done"], job["refused"]) == (2, 4)


async def test_a_job_that_waits_for_its_rate_shows_that_it_lives(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_TELL_EVERY_S", 0.1)
    await submitted(node, 3, queue="old")
    job = await begun(node, "cancel", {"queue": "old"}, rate=0.1)  # ten seconds between two
    seen: set[str] = set()

    async def lives() -> bool:
        now = (await node.call("GET", f"/v1/bulk/{job['id']}")).body
        if now["done"] == 1:
            seen.add(now["updated_at"])
        return len(seen) > 3 or now["done"] > 1

    await wait_for(lives, 60, "it records again and again what it has done")
    assert len(seen) > 3, "it waited for its rate without a sign of life"
    assert (await node.call("POST", f"/v1/bulk/{job['id']}/stop")).status == 200
    stopped = await ended(node, job["id"])
    assert (stopped["status"], stopped["done"] < 3) == ("stopped", True)


async def test_a_job_can_be_stopped(node: RunningNode) -> None:
    ids = await submitted(node, 200, queue="old")
    job = await begun(node, "cancel", {"queue": "old"}, rate=2)

    async def some() -> bool:
        return bool((await node.call("GET", f"/v1/bulk/{job['id']}")).body["done"])

    await wait_for(some, 60, "some are done")
    assert (await node.call("POST", f"/v1/bulk/{job['id']}/stop")).status == 200
    stopped = await ended(node, job["id"])
    assert stopped["status"] == "stopped"
    assert 0 < stopped["done"] < 200
    left = (await node.call("GET", "/v1/tasks?queue=old&status=pending&limit=1000")).body["items"]
    assert len(left) == len(ids) - stopped["done"]
    again = await node.call("POST", f"/v1/bulk/{job['id']}/stop")
    assert (again.status, again.body["detail"]) == (409, "the job is stopped")
    assert [one["id"] for one in (await node.call("GET", "/v1/bulk")).body["items"]] == [job["id"]]


async def test_another_node_goes_on_where_a_dead_one_was(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_DEAD_S", 3600.0)
    db = node.context.api_db
    ids = await submitted(node, 6, queue="old")
    job = await begun(node, "cancel", {"queue": "gone"}, rate=100)
    await ended(node, job["id"])
    # As a node leaves it that dies after its first three tasks.
    await query(
        db,
        "update bulk_jobs set finished_at = null, status = 'running', owner = 'dead', place = $1,"
        ' filter = \'{"queue": "old"}\', total = 6, done = 3, epoch = 7',
        ids[3],
    )
    taken = await bulk.take(
        db, node.context.node_id, from_us(0), from_us(node.context.clock.now_us())
    )
    assert taken is None  # it may be alive
    await query(db, "update bulk_jobs set updated_at = updated_at - interval '2 hours'")
    job = await ended(node, job["id"])
    assert (job["status"], job["done"]) == ("done", 6)
    assert await statuses(node, ids[:3]) == {"cancelled"}
    assert await statuses(node, ids[3:]) == {"pending"}  # which the other one had done


async def test_a_node_that_lost_its_job_records_nothing(node: RunningNode) -> None:
    db = node.context.api_db
    await query(
        db,
        "insert into bulk_jobs (id, action, filter, rate, total, exact, created_at, updated_at, owner)"
        " values (gen_random_uuid(), 'pause', '{\"queue\": \"q\"}', 1, 0, true, now(), now(), 'busy')",
    )
    now = from_us(node.context.clock.now_us())
    first = await bulk.take(db, "busy", now, now)
    second = await bulk.take(db, "other", now + timedelta(seconds=60), now)
    assert first is not None
    assert second is not None
    assert await bulk.record(db, first, now, done=5) is None
    assert await bulk.record(db, second, now, done=2, end="done") == "done"
    kept = await bulk.get(db, first.id)
    assert kept is not None
    assert (kept.done, kept.status) == (2, "done")


async def test_a_clean_stop_hands_a_job_over(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url) as first:
        await submitted(first, 40, queue="old")
        job = await begun(first, "cancel", {"queue": "old"}, rate=4)

        async def some() -> bool:
            return bool((await first.call("GET", f"/v1/bulk/{job['id']}")).body["done"])

        await wait_for(some, 60, "some are done")
    async with running_node(fresh_database, redis_url) as second:
        assert (await ended(second, job["id"]))["done"] == 40


async def test_wrong_requests_name_their_field(node: RunningNode) -> None:
    good = {"action": "cancel", "filter": {"queue": "q"}}
    for change, field in (
        ({"action": "delete"}, "action"),
        ({"filter": {}}, "filter"),
        ({"filter": {"que": "q"}}, "filter.que"),
        ({"filter": {"status": "no"}}, "filter.status"),
        ({"filter": {"status": "completed"}}, "filter.status"),
        ({"filter": {"due_before": "soon"}}, "filter.due_before"),
        ({"filter": {"paused": "maybe"}}, "filter.paused"),
        ({"rate": 0}, "rate"),
        ({"run_at": FAR}, "run_at"),
        ({"action": "reschedule"}, "run_at"),
        ({"action": "reschedule", "run_at": FAR, "delay": 5}, "delay"),
        ({"more": 1}, "more"),
    ):
        answer = await node.call("POST", "/v1/bulk", {**good, **change})
        assert (answer.status, answer.fields) == (422, [field]), (change, answer)
    unknown = "00000000-0000-0000-0000-000000000001"
    assert (await node.call("GET", f"/v1/bulk/{unknown}")).status == 404
    assert (await node.call("POST", f"/v1/bulk/{unknown}/stop")).status == 404
    for cursor in ("x", "NXx4"):
        answer = await node.call("GET", f"/v1/bulk?cursor={cursor}")
        assert (answer.status, answer.fields) == (422, ["cursor"])


async def test_jobs_in_pages(node: RunningNode) -> None:
    made = [(await begun(node, "pause", {"queue": f"q{n}"}))["id"] for n in range(5)]
    await asyncio.gather(*(ended(node, one) for one in made))
    found, cursor = [], ""
    while True:
        page = (await node.call("GET", f"/v1/bulk?limit=2{cursor}")).body
        found += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == made[::-1]
