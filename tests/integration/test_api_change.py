"""Changing tasks: patch, cancel, retry. Each wins or loses cleanly, and the answer says which."""

import asyncio
from datetime import datetime
from typing import Any
from uuid import uuid4

import asyncpg
from node_rig import Answer, RunningNode
from waiting import wait_for

FAR = "2040-01-01T00:00:00Z"


async def new(node: RunningNode, **fields: Any) -> str:
    body = {"type": "a", "run_at": FAR, **fields}
    path: str = (await node.call("POST", "/v1/tasks", body)).headers["Location"]
    return path


async def failed(node: RunningNode) -> str:
    """A task that has used up its only attempt."""
    task = await node.running_task(max_retries=0)
    body = {"token": task.version, "outcome": "failed", "error": "no"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
    return f"/v1/tasks/{task.id}"


# Patch


async def test_each_field_that_may_change(node: RunningNode) -> None:
    path = await new(node, tags={"old": "1"}, misfire_grace=5)
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"run_at": "2041-01-01T00:00:00Z"}, {"next_run_at": "2041-01-01T00:00:00Z"}),
        ({"payload": {"a": [1]}}, {"payload": {"a": [1]}}),
        ({"payload": None}, {"payload": None}),
        ({"priority": 0}, {"priority": 0}),
        ({"max_retries": 0}, {"max_retries": 0}),
        ({"backoff": {"kind": "fixed", "delay": 1}},
         {"backoff": {"kind": "fixed", "delay": 1, "factor": 2, "max_delay": 3600, "jitter": 0.1}}),
        ({"timeout": "PT1H"}, {"timeout": 3600}),
        ({"tags": {"new": "2"}}, {"tags": {"new": "2"}}),
        ({"tags": {}}, {"tags": {}}),
        ({"misfire_grace": 7}, {"misfire_grace": 7}),
        ({"misfire_grace": None}, {"misfire_grace": None}),
        ({"concurrency_key": "k"}, {"concurrency_key": "k", "concurrency_limit": 1}),
        ({"concurrency_key": "l", "concurrency_limit": 2},
         {"concurrency_key": "l", "concurrency_limit": 2}),
        ({"concurrency_key": None}, {"concurrency_key": None, "concurrency_limit": None}),
        ({"fairness_key": "f"}, {"fairness_key": "f"}),
        ({"fairness_key": None}, {"fairness_key": None}),
    ]  # fmt: skip
    before = (await node.call("GET", path)).body
    for change, expected in changes:
        answer = await node.call("PATCH", path, change)
        version = before["version"] + 1
        assert answer.status == 200
        assert answer.headers["ETag"] == f'"{version}"'
        updated = {"updated_at": answer.body["updated_at"]}
        assert answer.body == {**before, **expected, **updated, "version": version}, change
        before = answer.body
        assert (await node.call("GET", path)).body == before


async def test_if_match(node: RunningNode) -> None:
    path = await new(node)
    for match, status in (
        ('"0"', 200), ('"0"', 412), ('"1"', 200), ("2", 200), ('W/"3"', 200), ("*", 200),
        ('"x"', 422), ("", 422), ('"1", "5"', 422), ('"' + "9" * 19 + '"', 422),
    ):  # fmt: skip
        answer = await node.call("PATCH", path, {"priority": 1}, {"If-Match": match})
        assert answer.status == status, match
        if status == 412:
            assert answer.body["task"] == (await node.call("GET", path)).body
        if status == 422:
            assert answer.fields == ["If-Match"]
    assert (await node.call("GET", path)).body["version"] == 5


async def test_one_of_many_patches_of_a_version_wins(node: RunningNode) -> None:
    path = await new(node)
    answers = await asyncio.gather(
        *(node.call("PATCH", path, {"payload": n}, {"If-Match": '"0"'}) for n in range(20))
    )
    (winner,) = [answer.body for answer in answers if answer.status == 200]
    assert [answer.status for answer in answers].count(412) == 19
    # Each loser was shown the task as the winner had left it.
    shown = [answer.body["task"] for answer in answers if answer.status == 412]
    assert shown == [winner] * 19
    assert (await node.call("GET", path)).body == winner


async def test_a_running_or_ended_task_cannot_be_changed(node: RunningNode) -> None:
    running = f"/v1/tasks/{(await node.running_task()).id}"
    answer = await node.call("PATCH", running, {"priority": 1})
    assert (answer.status, answer.body["task"]["status"]) == (409, "running")
    ended = await new(node)
    await node.call("POST", ended + "/cancel")
    answer = await node.call("PATCH", ended, {"priority": 1})
    assert (answer.status, answer.body["task"]["status"]) == (409, "cancelled")
    unknown = await node.call("PATCH", f"/v1/tasks/{uuid4()}", {"priority": 1})
    assert unknown.status == 404


async def test_a_patch_that_waited_for_a_claim_sees_it(node: RunningNode) -> None:
    """The row is locked by a claim that has not committed when the patch arrives."""
    path = await new(node)
    connection = await asyncpg.connect(node.settings.database_url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        "update tasks set status = 'running', version = 7, owner = 'x', claimed_at = now()"
    )
    patch = asyncio.create_task(node.call("PATCH", path, {"priority": 1}))
    await _waits_for_a_lock(connection)
    await transaction.commit()
    await connection.close()
    answer = await patch
    assert answer.status == 409
    assert (answer.body["task"]["status"], answer.body["task"]["version"]) == ("running", 7)


async def _waits_for_a_lock(connection: Any) -> None:
    query = "select count(*) from pg_locks where not granted"
    await wait_for(lambda: connection.fetchval(query), 30, "the statement waits")


async def test_a_patch_to_now_fires_at_once(node: RunningNode) -> None:
    path = await new(node)
    assert (await node.call("PATCH", path, {"delay": 0})).status == 200
    await status_becomes(node, path, "running")


async def status_becomes(node: RunningNode, path: str, status: str) -> Any:
    async def there() -> Any:
        body = (await node.call("GET", path)).body
        return body if body["status"] == status else None

    return await wait_for(there, 60, f"{path} is {status}")


# Cancel


async def test_cancel_of_a_pending_task(node: RunningNode) -> None:
    path = await new(node, payload=1)
    before = (await node.call("GET", path)).body
    answer = await node.call("POST", path + "/cancel")
    assert answer.status == 200
    assert answer.body == (await node.call("GET", path)).body
    stamps = {name: answer.body[name] for name in ("updated_at", "finished_at")}
    assert answer.body == {
        **before, **stamps, "status": "cancelled", "version": 1, "next_run_at": None,
    }  # fmt: skip
    assert (await node.call("GET", path + "/runs")).body["items"] == []
    again = await node.call("POST", path + "/cancel")
    assert (again.status, again.body["task"]) == (409, answer.body)


async def test_cancel_of_a_running_task_makes_its_report_stale(node: RunningNode) -> None:
    task = await node.running_task()
    path = f"/v1/tasks/{task.id}"
    answer = await node.call("POST", path + "/cancel")
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert answer.body["version"] == task.version + 1
    report = {"token": task.version, "outcome": "completed", "result": 1}
    assert (await node.call("POST", path + "/report", report)).status == 409
    (run,) = (await node.call("GET", path + "/runs")).body["items"]
    assert (run["outcome"], run["token"]) == ("cancelled", task.version)
    assert (await node.call("GET", path)).body == answer.body


async def test_cancel_of_a_finished_task_is_refused(node: RunningNode) -> None:
    task = await node.running_task()
    path = f"/v1/tasks/{task.id}"
    report = {"token": task.version, "outcome": "completed", "result": {"ok": True}}
    assert (await node.call("POST", path + "/report", report)).status == 200
    answer = await node.call("POST", path + "/cancel")
    assert (answer.status, answer.body["task"]["status"]) == (409, "completed")
    assert answer.body["task"]["result"] == {"ok": True}


async def test_c26_cancel_of_an_unknown_id_leaves_nothing_behind(node: RunningNode) -> None:
    own = str(uuid4())
    assert (await node.call("POST", f"/v1/tasks/{own}/cancel")).status == 404
    assert await node.count() == await node.count("finished_tasks") == await node.count("runs") == 0
    body = {"type": "a", "id": own, "idempotency_key": "order-17"}
    assert (await node.call("POST", "/v1/tasks", body)).status == 201
    task = await status_becomes(node, f"/v1/tasks/{own}", "running")
    report = {"token": task["version"], "outcome": "completed"}
    assert (await node.call("POST", f"/v1/tasks/{own}/report", report)).status == 200
    # The second half: a cancel of what has completed is refused, and the key's next task runs.
    assert (await node.call("POST", f"/v1/tasks/{own}/cancel")).status == 409
    await node.running_task("a", idempotency_key="order-18")


async def test_one_of_many_cancels_wins(node: RunningNode) -> None:
    path = await new(node)
    answers = await asyncio.gather(*(node.call("POST", path + "/cancel") for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    assert await node.count("finished_tasks") == 1


# Retry


async def test_retry_of_a_failed_task(node: RunningNode) -> None:
    path = await failed(node)
    before = (await node.call("GET", path)).body
    assert (before["status"], before["error"]) == ("failed", "no")
    (first,) = (await node.call("GET", path + "/runs")).body["items"]
    answer = await node.call("POST", path + "/retry")
    assert (answer.status, answer.body["status"]) == (200, "pending")
    assert answer.body["version"] > before["version"]
    assert answer.body["retry_count"] == 0
    assert datetime.fromisoformat(answer.body["next_run_at"]) == datetime.fromisoformat(
        answer.body["updated_at"]
    )
    task = await status_becomes(node, path, "running")
    report = {"token": task["version"], "outcome": "completed", "result": 7}
    assert (await node.call("POST", path + "/report", report)).status == 200
    ended = (await node.call("GET", path)).body
    assert (ended["status"], ended["result"], ended["error"]) == ("completed", 7, None)
    second, again = (await node.call("GET", path + "/runs")).body["items"]
    assert again == first
    # The same occurrence: what guards its effects still knows it.
    assert second["occurrence"] == first["occurrence"]


async def test_only_a_failed_task_can_be_retried(node: RunningNode) -> None:
    pending = await new(node)
    cancelled = await new(node)
    await node.call("POST", cancelled + "/cancel")
    running = f"/v1/tasks/{(await node.running_task()).id}"
    for path, status in ((pending, "pending"), (cancelled, "cancelled"), (running, "running")):
        answer: Answer = await node.call("POST", path + "/retry")
        assert (answer.status, answer.body["task"]["status"]) == (409, status)
    assert (await node.call("POST", f"/v1/tasks/{uuid4()}/retry")).status == 404


async def test_one_of_many_retries_wins(node: RunningNode) -> None:
    path = await failed(node)
    answers = await asyncio.gather(*(node.call("POST", path + "/retry") for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    assert await node.count() == 1
    assert await node.count("finished_tasks") == 0


async def test_a_new_time_is_a_new_occurrence_until_the_task_has_begun(node: RunningNode) -> None:
    path = await new(node, max_retries=1, backoff={"kind": "fixed", "delay": 1000})
    moved = (await node.call("PATCH", path, {"delay": 0})).body["next_run_at"]
    task = await status_becomes(node, path, "running")
    report = {"token": task["version"], "outcome": "failed"}
    assert (await node.call("POST", path + "/report", report)).status == 200
    assert (await node.call("PATCH", path, {"delay": 0})).status == 200
    task = await status_becomes(node, path, "running")
    report = {"token": task["version"], "outcome": "completed"}
    assert (await node.call("POST", path + "/report", report)).status == 200
    runs = (await node.call("GET", path + "/runs")).body["items"]
    times = {datetime.fromisoformat(run["occurrence"]) for run in runs}
    assert (len(runs), times) == (2, {datetime.fromisoformat(moved)})
