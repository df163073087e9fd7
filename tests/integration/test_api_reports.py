"""What workers do over HTTP: start, report one outcome, report many."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
from node_rig import RunningNode
from redis.asyncio import Redis
from waiting import wait_for


async def stream_length(node: RunningNode, queue: str = "default") -> int:
    async with Redis.from_url(str(node.settings.redis_url)) as redis:
        return int(await redis.xlen(f"duly:{{{queue}}}:tasks"))


async def test_one_start_for_a_token(node: RunningNode) -> None:
    task = await node.running_task(on_lost="fail")
    path = f"/v1/tasks/{task.id}/start"
    body = {"token": task.version, "start_id": "one", "worker": "w"}
    answers = await asyncio.gather(
        *(node.call("POST", path, {**body, "start_id": f"s{n}"}) for n in range(10))
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    winner = [answer.status for answer in answers].index(200)
    again = await node.call("POST", path, {**body, "start_id": f"s{winner}"})
    assert again.status == 200
    found = await node.client.get(task.id)
    assert found.worker == "w"
    assert found.started_at is not None
    for stale in (task.version - 1, task.version + 1, 0):
        assert (await node.call("POST", path, {**body, "token": stale})).status == 409
    unknown = await node.call("POST", f"/v1/tasks/{uuid4()}/start", body)
    assert unknown.status == 409


async def test_wrong_starts(node: RunningNode) -> None:
    task = await node.running_task()
    body = {"token": task.version, "start_id": "s", "worker": "w"}
    for change, field in (
        ({"token": "1"}, "token"), ({"token": -1}, "token"), ({"token": 1 << 63}, "token"),
        ({"start_id": ""}, "start_id"), ({"start_id": "a\0"}, "start_id"), ({"worker": 1}, "worker"),
        ({"worker": "\0"}, "worker"), ({"worker": "w" * 201}, "worker"), ({"nope": 1}, "nope"),
    ):  # fmt: skip
        answer = await node.call("POST", f"/v1/tasks/{task.id}/start", {**body, **change})
        assert (answer.status, answer.fields) == (422, [field]), change
    assert (await node.client.get(task.id)).worker is None


async def test_a_completed_report(node: RunningNode) -> None:
    task = await node.running_task()
    path = f"/v1/tasks/{task.id}"
    started = 1_900_000_000_000.5
    body = {
        "token": task.version, "outcome": "completed", "result": {"n": 73786976294838206464},
        "worker": "w1", "started": started, "finished": started + 1500,
    }  # fmt: skip
    await wait_for(lambda: stream_length(node), 60, "the task is in the stream")
    assert (await node.call("POST", path + "/report", body)).status == 200
    ended = (await node.call("GET", path)).body
    assert (ended["status"], ended["worker"]) == ("completed", "w1")
    assert ended["result"] == {"n": 73786976294838206464}
    (run,) = (await node.call("GET", path + "/runs")).body["items"]
    assert (run["outcome"], run["token"], run["attempt"]) == ("completed", task.version, 1)
    length = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    assert length == timedelta(seconds=1.5)
    assert await stream_length(node) == 0
    again = await node.call("POST", path + "/report", body)
    assert again.status == 409
    assert len((await node.call("GET", path + "/runs")).body["items"]) == 1


async def test_a_failed_report_follows_the_backoff(node: RunningNode) -> None:
    task = await node.running_task(backoff={"kind": "fixed", "delay": 100, "jitter": 0})
    body = {"token": task.version, "outcome": "failed", "error": {"type": "E", "message": "m"}}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
    again = await node.client.get(task.id)
    assert (again.status, again.retry_count, again.error) == ("pending", 1, body["error"])
    assert again.next_run_at is not None
    assert again.updated_at is not None
    assert again.next_run_at - again.updated_at == timedelta(seconds=100)


async def test_every_way_to_end_an_attempt(node: RunningNode) -> None:
    for said, status, outcome in (
        ({"outcome": "failed", "retry": False}, "failed", "failed"),
        ({"outcome": "failed", "retry": 0}, "failed", "failed"),
        ({"outcome": "failed", "delay": 500}, "pending", "failed"),
        ({"outcome": "failed", "retry": 1, "delay": 1e308}, "pending", "failed"),
        ({"outcome": "failed", "error": "timed_out", "retry": 0}, "failed", "timed_out"),
        ({"outcome": "failed", "error": {"type": "timed_out"}, "retry": 0}, "failed", "timed_out"),
        ({"outcome": "snoozed", "delay": 500}, "pending", None),
        ({"outcome": "completed"}, "completed", "completed"),
    ):  # fmt: skip
        task = await node.running_task()
        path = f"/v1/tasks/{task.id}"
        answer = await node.call("POST", path + "/report", {"token": task.version, **said})
        assert answer.status == 200, said
        found = (await node.call("GET", path)).body
        runs = (await node.call("GET", path + "/runs")).body["items"]
        assert (found["status"], [run["outcome"] for run in runs]) == (
            status, [] if outcome is None else [outcome],
        ), said  # fmt: skip


async def test_wrong_reports(node: RunningNode) -> None:
    task = await node.running_task()
    body = {"token": task.version, "outcome": "completed"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"token": None}, "token"), ({"outcome": "lost"}, "outcome"), ({"delay": -1}, "delay"),
        ({"retry": 2}, "retry"), ({"result": {"a": "\0"}}, "result.a"), ({"error": ["\0"]}, "error[0]"),
        ({"started": -1}, "started"), ({"started": 1e300}, "started"), ({"finished": -1}, "finished"),
        ({"worker": ""}, "worker"), ({"nope": 1}, "nope"),
        ({"result": "x" * (1 << 18)}, "result"), ({"error": "x" * (1 << 18)}, "error"),
    ]  # fmt: skip
    for change, field in wrong:
        answer = await node.call("POST", f"/v1/tasks/{task.id}/report", {**body, **change})
        assert (answer.status, answer.fields) == (422, [field]), change
        item = {"id": str(task.id), **body, **change}
        answer = await node.call("POST", "/v1/reports", {"reports": [item]})
        assert (answer.status, answer.fields) == (422, [f"reports[0].{field}"]), change
    deep = b'{"token":1,"outcome":"completed","result":%s%s}' % (b"[" * 10_000, b"]" * 10_000)
    answer = await node.call("POST", f"/v1/tasks/{task.id}/report", deep)
    assert (answer.status, answer.fields) == (422, ["result"])
    assert (await node.client.get(task.id)).status == "running"
    assert await node.count("runs") == 0


async def test_many_reports_at_once(node: RunningNode) -> None:
    one, two = await node.running_task(), await node.running_task()
    await node.running_task()
    answer = await node.call("POST", "/v1/reports", {"reports": [
        {"id": str(one.id), "token": one.version, "outcome": "completed", "result": 1},
        {"id": str(two.id), "token": two.version + 1, "outcome": "completed"},
        {"id": str(uuid4()), "token": 1, "outcome": "failed"},
        {"id": str(two.id), "token": two.version, "outcome": "failed", "retry": False},
    ]})  # fmt: skip
    assert answer[:2] == (200, {"recorded": [True, False, False, True]})
    assert (await node.client.get(one.id)).result == 1
    assert (await node.client.get(two.id)).status == "failed"
    assert await node.count() == 1
    assert (await node.call("POST", "/v1/reports", {"reports": []})).body == {"recorded": []}
    many = [{"id": str(uuid4()), "token": 1, "outcome": "completed"}] * 10_001
    assert (await node.call("POST", "/v1/reports", {"reports": many})).status == 422


async def test_of_reports_at_once_one_is_recorded(node: RunningNode) -> None:
    task = await node.running_task()
    path = f"/v1/tasks/{task.id}/report"
    body = {"token": task.version, "outcome": "completed"}
    answers = await asyncio.gather(
        *(node.call("POST", path, {**body, "result": n}) for n in range(10))
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    assert await node.count("runs") == 1


async def test_c43_fifty_attempts_without_overflow(node: RunningNode) -> None:
    """Base 5, factor 5, fifty attempts: 5 * 5 ** 49 seconds are more than there will be."""
    backoff = {"delay": 5, "factor": 5, "max_delay": 31_536_000, "jitter": 1}
    task = await node.running_task(max_retries=50, backoff=backoff)
    path = f"/v1/tasks/{task.id}"
    connection = await asyncpg.connect(node.settings.database_url)
    await connection.execute("update tasks set retry_count = 47")
    token = task.version
    for used in (48, 49, 50):
        body = {"token": token, "outcome": "failed"}
        assert (await node.call("POST", path + "/report", body)).status == 200
        waits = (await node.call("GET", path)).body
        assert (waits["status"], waits["retry_count"]) == ("pending", used)
        pause = datetime.fromisoformat(waits["next_run_at"]) - datetime.fromisoformat(
            waits["updated_at"]
        )
        assert timedelta(0) <= pause <= timedelta(days=2 * 365)
        assert (await node.call("PATCH", path, {"delay": 0})).status == 200

        async def claimed(after: int = token) -> int | None:
            found = (await node.call("GET", path)).body
            running = found["status"] == "running" and found["version"] > after
            return int(found["version"]) if running else None

        token = await wait_for(claimed, 60, "the next attempt")
    await connection.close()
    body = {"token": token, "outcome": "failed", "error": "last"}
    assert (await node.call("POST", path + "/report", body)).status == 200
    ended = (await node.call("GET", path)).body
    assert (ended["status"], ended["error"]) == ("failed", "last")
