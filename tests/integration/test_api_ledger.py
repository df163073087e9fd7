"""GET /v1/tasks/{id}/ledger and GET /v1/ledger: one verdict for each due time."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from store_rig import query
from waiting import wait_for

from duly.actors.ending import end
from duly.storage import upkeep
from duly.storage.claims import Ended

FAR = {"delay": 86_400}


async def ledger(node: RunningNode, task_id: object, **parameters: object) -> list[dict[str, Any]]:
    asked = "&".join(f"{name}={value}" for name, value in parameters.items())
    answer = await node.call("GET", f"/v1/tasks/{task_id}/ledger?{asked}")
    assert answer.status == 200, answer
    items: list[dict[str, Any]] = answer.body["items"]
    return items


def brief(items: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (one["verdict"], one["reason"], [run["outcome"] for run in one["attempts"]])
        for one in items
    ]


async def report(node: RunningNode, task: Any, outcome: str, **more: Any) -> int:
    body = {"token": task.version, "outcome": outcome, **more}
    return (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status


async def test_a_one_off_from_open_to_its_verdict(node: RunningNode) -> None:
    task = await node.running_task(backoff={"kind": "fixed", "delay": 0.01})
    assert brief(await ledger(node, task.id)) == [(None, None, [])]
    assert await report(node, task, "failed") == 200

    async def again() -> Any:
        found = await node.client.get(task.id)
        return found if found.status == "running" and found.version > task.version else None

    second = await wait_for(again, 60, "it runs again")
    assert brief(await ledger(node, task.id)) == [(None, None, ["failed"])]
    assert await report(node, second, "completed", result=1) == 200
    (item,) = await ledger(node, task.id)
    assert brief([item]) == [("completed", None, ["completed", "failed"])]
    assert item["attempts"][0]["result"] == 1
    assert (item["through"], item["rejected"]) == (None, [])
    runs = (await node.call("GET", f"/v1/tasks/{task.id}/runs")).body["items"]
    assert runs == item["attempts"]
    assert item["occurrence"] == runs[0]["occurrence"]


async def test_a_task_that_is_cancelled_before_it_is_due(node: RunningNode) -> None:
    task = await node.client.submit("t", delay=86_400)
    await node.client.cancel(task.id)
    (item,) = await ledger(node, task.id)
    assert brief([item]) == [("cancelled", None, [])]
    assert await node.client.runs(task.id) == []


async def test_a_retry_by_a_person_leads_to_another_verdict(node: RunningNode) -> None:
    task = await node.running_task(max_retries=0)
    assert await report(node, task, "failed") == 200
    assert brief(await ledger(node, task.id)) == [("failed", None, ["failed"])]
    await node.client.retry(task.id)
    assert brief(await ledger(node, task.id)) == [(None, None, ["failed"])]
    await node.client.cancel(task.id)
    ((verdict, _, attempts),) = brief(await ledger(node, task.id))
    assert verdict == "cancelled"
    assert attempts[-1] == "failed"


HOUR_S = 3600


async def periodic(node: RunningNode, since_s: float, **options: Any) -> str:
    """A paused task of every hour whose first due time was so long ago."""
    start = datetime.now(UTC) + timedelta(seconds=60)
    schedule = {"every": HOUR_S, "start_at": start.isoformat()}
    body = {"type": "t", "schedule": schedule, **options}
    task_id: str = (await node.call("POST", "/v1/tasks", body)).body["id"]
    await node.client.pause(task_id)
    moved = timedelta(seconds=since_s + 60)
    schedule["start_at"] = (start - moved).isoformat()
    await query(
        node.context.db,
        "update tasks set occurrence = occurrence - $2::interval, next_run_at = next_run_at - $2::interval,"
        " following = following - $2::interval, created_at = created_at - $2::interval,"
        " schedule = jsonb_set(schedule, '{start_at}', to_jsonb($3::text)) where id::text = $1",
        task_id, moved, schedule["start_at"],
    )  # fmt: skip
    return task_id


async def test_what_came_due_is_accounted_for_at_a_cancel(node: RunningNode) -> None:
    task_id = await periodic(node, 3.5 * HOUR_S)
    await node.client.cancel(task_id)
    items = await ledger(node, task_id)
    assert brief(items) == [("skipped", "ended", [])] * 3 + [("cancelled", None, [])]
    at = [datetime.fromisoformat(one["occurrence"]) for one in reversed(items)]
    assert at == [at[0] + timedelta(hours=n) for n in range(4)]


async def test_one_record_stands_for_the_rest_of_very_many(node: RunningNode) -> None:
    task_id = await periodic(node, 1005.5 * HOUR_S)
    await node.client.cancel(task_id)
    items = await ledger(node, task_id, limit=1000)
    assert brief(items) == [("skipped", "ended", [])] * 1000
    newest = items[0]
    assert newest["through"] is not None
    gap = datetime.fromisoformat(newest["through"]) - datetime.fromisoformat(newest["occurrence"])
    assert timedelta(hours=5) <= gap < timedelta(hours=360)
    assert {one["through"] for one in items[1:]} == {None}


async def test_pages_of_one_task(node: RunningNode) -> None:
    task_id = await periodic(node, 3.5 * HOUR_S)
    await node.client.resume(task_id)
    seen: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        path = f"/v1/tasks/{task_id}/ledger?limit=2" + (f"&cursor={cursor}" if cursor else "")
        page = (await node.call("GET", path)).body
        seen += page["items"]
        cursor = page["next_cursor"]
    assert brief(seen) == [(None, None, [])] + [("skipped", "paused", [])] * 4
    assert len({one["occurrence"] for one in seen}) == 5


async def test_everything_by_time_and_filter(node: RunningNode) -> None:
    began = datetime.now(UTC) - timedelta(minutes=5)
    done = await node.running_task("done", max_retries=0)
    failed = await node.running_task("bad", queue="other", max_retries=0)
    assert await report(node, done, "completed", worker="w") == 200
    assert await report(node, failed, "failed", error={"type": "E"}) == 200
    late = await node.client.submit("t", delay=86_400)
    await node.client.cancel(late.id)

    async def asked(text: str) -> list[str]:
        answer = await node.call("GET", f"/v1/ledger?{text}")
        assert answer.status == 200, answer
        return [one["task_id"] for one in answer.body["items"]]

    assert await asked("") == [str(late.id), str(failed.id), str(done.id)]
    assert await asked("verdict=failed") == [str(failed.id)]
    assert await asked("type=done&queue=default") == [str(done.id)]
    assert await asked("queue=other&verdict=completed") == []
    assert await asked("verdict=cancelled&limit=1") == [str(late.id)]
    since = began.isoformat().replace("+", "%2B")
    assert len(await asked(f"since={since}")) == 3
    assert await asked(f"until={since}") == []
    entry = (await node.call("GET", "/v1/ledger?verdict=failed")).body["items"][0]
    assert entry == {
        "task_id": str(failed.id), "type": "bad", "queue": "other", "verdict": "failed",
        "reason": None, "through": None, "outcome": "failed", "attempt": 1, "worker": None,
        "token": failed.version, "error": {"type": "E"}, "times": 1, "started_at": None,
        "occurrence": entry["occurrence"], "finished_at": entry["finished_at"],
        "recorded_at": entry["recorded_at"],
    }  # fmt: skip
    page = (await node.call("GET", "/v1/ledger?limit=2")).body
    rest = (await node.call("GET", f"/v1/ledger?limit=2&cursor={page['next_cursor']}")).body
    assert ([one["task_id"] for one in rest["items"]], rest["next_cursor"]) == (
        [str(done.id)],
        None,
    )


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("verdict=nice", "verdict"), ("reason=nice", "reason"), ("since=soon", "since"),
        ("until=x", "until"), ("limit=0", "limit"), ("cursor=!", "cursor"), ("cursor=YXxifGM", "cursor"),
        ("type=%00", "type"), ("verdict=failed&reason=paused", "reason"), ("status=failed", "status"),
    ],
)  # fmt: skip
async def test_wrong_questions(node: RunningNode, asked: str, field: str) -> None:
    answer = await node.call("GET", f"/v1/ledger?{asked}")
    assert (answer.status, answer.fields) == (422, [field])


async def test_unknown_tasks_and_wrong_cursors(node: RunningNode) -> None:
    assert (await node.call("GET", f"/v1/tasks/{uuid4()}/ledger")).status == 404
    assert (await node.call("GET", "/v1/tasks/x/ledger")).status == 422
    assert (await node.call("GET", f"/v1/tasks/{uuid4()}/ledger?cursor=x")).status == 422


# Refused reports


async def refused(node: RunningNode, task_id: object) -> list[dict[str, Any]]:
    """What the ledger of a task shows of them, once it shows any."""

    async def shown() -> list[dict[str, Any]]:
        return [one for item in await ledger(node, task_id) for one in item["rejected"]]

    return await wait_for(shown, 60, "a refused report is in the ledger")


async def test_a_report_after_a_cancel_is_kept(node: RunningNode) -> None:
    task = await node.running_task("mine", queue="other")
    await node.client.cancel(task.id)
    said = {"worker": "late", "error": {"type": "E"}, "started": 1_900_000_000_000}
    for _ in range(3):
        assert await report(node, task, "failed", **said) == 409
    (one,) = await refused(node, task.id)
    assert (one["token"], one["outcome"], one["worker"]) == (task.version, "failed", "late")
    assert (one["reason"], one["error"]) == ("stale attempt", {"type": "E"})
    ((verdict, _, attempts),) = brief(await ledger(node, task.id))
    assert (verdict, attempts) == ("cancelled", ["cancelled"])
    (entry,) = (await node.call("GET", "/v1/ledger?verdict=rejected")).body["items"]
    assert (entry["task_id"], entry["type"], entry["queue"]) == (str(task.id), "mine", "other")
    assert (entry["verdict"], entry["reason"]) == ("rejected", "stale attempt")
    assert entry["started_at"].startswith("2030-03-17T")
    assert (await node.call("GET", "/v1/ledger?verdict=rejected&type=x")).body["items"] == []


async def test_pages_go_on_after_the_largest_token(node: RunningNode) -> None:
    task = await node.running_task()
    largest = (1 << 63) - 1
    for token in (largest, largest - 1):
        body = {"token": token, "outcome": "completed"}
        assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 409

    async def page() -> Any:
        found = (await node.call("GET", "/v1/ledger?verdict=rejected&limit=1")).body
        return found if found["next_cursor"] is not None else None

    seen: list[int] = []
    more = await wait_for(page, 60, "both are in the ledger")
    while True:
        seen += [one["token"] for one in more["items"]]
        if more["next_cursor"] is None:
            break
        path = f"/v1/ledger?verdict=rejected&limit=1&cursor={more['next_cursor']}"
        more = (await node.call("GET", path)).body
    assert sorted(seen) == [largest - 1, largest]


async def test_the_report_that_was_recorded_is_no_stale_attempt(node: RunningNode) -> None:
    task = await node.running_task()
    for outcome, worker, status in (
        ("completed", "a", 200), ("completed", "a", 409), ("completed", "b", 409),
    ):  # fmt: skip
        assert await report(node, task, outcome, worker=worker) == status
    (one,) = await refused(node, task.id)
    assert one["worker"] == "b"


async def test_a_report_in_the_stream_after_its_attempt_was_given_up(
    node: RunningNode, redis_url: str
) -> None:
    async with HandWorker(redis_url, "dead") as dead, HandWorker(redis_url, "next") as after:
        await dead.live(ttl_ms=2_000)
        task = await node.client.submit("t", backoff={"kind": "fixed", "delay": 0.01})
        first = await dead.take()
        await after.live()
        second = await after.take()
        assert second.fields["token"] != first.fields["token"]
        for _ in range(3):
            await dead.report(first, worker="dead", result='"too late"')
        await after.report(second, worker="next", result="1")
        (one,) = await refused(node, task.id)
        assert (one["token"], one["worker"]) == (int(first.fields["token"]), "dead")

        async def ended() -> bool:
            return (await node.client.get(task.id)).status == "completed"

        await wait_for(ended, 60, "the task has ended")
        (item,) = await ledger(node, task.id)
        assert brief([item]) == [("completed", None, ["completed", "lost"])]


async def test_what_the_reaper_finds_too_late_is_no_report(node: RunningNode) -> None:
    """An attempt that is given up and was reported in the same moment."""
    task = await node.running_task()
    assert await report(node, task, "completed", worker="w") == 200
    late = Ended(task.id, task.version, "lost", "w", None, datetime.now(UTC))
    assert await end(node.context, [late]) == 0
    other = await node.running_task()
    await node.client.cancel(other.id)
    assert await report(node, other, "completed") == 409
    await refused(node, other.id)  # whatever came before it has been written too
    assert [one["rejected"] for one in await ledger(node, task.id)] == [[]]


async def test_days_of_refused_reports_are_made_and_dropped(node: RunningNode) -> None:
    db = node.context.db
    today = datetime.now(UTC)
    name = f"rejected_reports_{today:%Y%m%d}"
    assert (await query(db, "select to_regclass($1)::text as name", name))[0]["name"] == name
    await upkeep.drop_old_days(db, today + timedelta(days=3))
    assert (await query(db, "select to_regclass($1)::text as name", name))[0]["name"] is None
