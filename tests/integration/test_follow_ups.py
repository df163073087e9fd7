"""Follow-ups and tasks that wait for others, from the API to workers and back, on real servers."""

from typing import Any
from uuid import uuid4

from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

from duly.nodes.worker import Context, Fail, Worker

DONE_S = 60.0


async def submit(node: RunningNode, **body: Any) -> str:
    answer = await node.call("POST", "/v1/tasks", {"type": "t", **body})
    assert answer.status == 201, answer.body
    task_id: str = answer.body["id"]
    return task_id


async def get(node: RunningNode, task_id: str) -> Any:
    return (await node.call("GET", f"/v1/tasks/{task_id}")).body


async def ended(node: RunningNode, task_id: str) -> Any:
    async def is_over() -> Any:
        task = await get(node, task_id)
        return task if task["finished_at"] is not None else None

    return await wait_for(is_over, DONE_S, f"{task_id} has ended")


async def test_what_follows_runs_with_the_result_or_the_error(
    node: RunningNode, redis_url: str
) -> None:
    seen: list[tuple[str, Any]] = []
    worker = Worker(redis_url, queues=["default"], concurrency=4)

    @worker.task("t")
    async def work(ctx: Context, payload: Any) -> Any:
        if payload == "fail":
            raise Fail("no")
        return {"n": 1}

    @worker.task("then")
    async def then(ctx: Context, payload: Any) -> None:
        assert ctx.parent is not None
        seen.append((str(ctx.parent.id), ctx.parent.result or ctx.parent.error))

    async with running(worker):
        both = {"on_success": {"type": "then"}, "on_failure": {"type": "then", "priority": 9}}
        good = await submit(node, **both)
        bad = await submit(node, payload="fail", **both)
        last = await submit(node, after=[good])
        broken = await submit(node, after=[bad, last])
        assert (await ended(node, last))["status"] == "completed"
        failed = await ended(node, broken)

        async def have_both() -> bool:
            return len(seen) == 2

        await wait_for(have_both, DONE_S, "both follow-ups have run")
    assert (failed["status"], failed["error"]["type"], failed["error"]["task"]) == (
        "failed",
        "after",
        bad,
    )
    said = dict(seen)
    assert said[good] == {"n": 1}
    assert said.keys() == {good, bad}
    runs = (await node.call("GET", f"/v1/tasks/{good}/runs")).body["items"]
    follower = await get(node, runs[0]["follow_up"])
    assert (follower["type"], follower["parent"]["id"]) == ("then", good)


async def test_a_waiting_task_shows_what_it_waits_for(node: RunningNode) -> None:
    first = await submit(node, delay=3600)
    last = await submit(node, after=[first])
    task = await get(node, last)
    assert (task["status"], task["next_run_at"], task["waits_for"]) == ("pending", None, [first])
    reasons = (await node.call("GET", f"/v1/tasks/{last}/explain")).body["reasons"]
    assert reasons[0]["code"] == "waiting_for_tasks"
    assert reasons[0]["message"] == f"It waits for task {first} (pending) to complete."
    assert (await node.call("POST", f"/v1/tasks/{last}/run-now")).status == 200
    task = await get(node, last)
    assert "waits_for" not in task
    assert task["next_run_at"] is not None


async def test_who_waits_for_a_task_in_pages(node: RunningNode) -> None:
    first = await submit(node, delay=3600)
    waits = [await submit(node, after=[first]) for _ in range(3)]
    path = f"/v1/tasks/{first}/waiting"
    page = (await node.call("GET", f"{path}?limit=2")).body
    assert [one["id"] for one in page["items"]] == waits[:0:-1]
    rest = (await node.call("GET", f"{path}?limit=2&cursor={page['next_cursor']}")).body
    assert ([one["id"] for one in rest["items"]], rest["next_cursor"]) == (waits[:1], None)
    assert (await node.call("POST", f"/v1/tasks/{first}/cancel")).status == 200
    assert (await node.call("GET", path)).body == {"items": [], "next_cursor": None}
    assert (await node.call("GET", f"/v1/tasks/{uuid4()}/waiting")).status == 404
    assert (await node.call("GET", f"{path}?limit=0")).fields == ["limit"]


async def test_a_cancel_ends_what_waits(node: RunningNode) -> None:
    first = await submit(node, delay=3600)
    last = await submit(node, after=[first])
    assert (await node.call("POST", f"/v1/tasks/{first}/cancel")).status == 200
    assert (await ended(node, last))["error"]["status"] == "cancelled"


async def test_bad_input_is_named(node: RunningNode) -> None:
    unknown = str(uuid4())
    deep: Any = {"type": "a"}
    for _ in range(5):
        deep = {"type": "a", "on_success": deep}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"after": [unknown]}, "after[0]"),
        ({"after": [unknown], "schedule": {"every": 60}}, "after"),
        ({"after": [unknown], "id": unknown}, "after[0]"),
        ({"on_success": {"type": "a", "timeout": 0}}, "on_success.timeout"),
        ({"on_failure": {"type": "a", "run_at": "2040-01-01T00:00:00Z"}}, "on_failure.run_at"),
        ({"on_success": deep}, "on_success" + ".on_success" * 5),
    ]
    for body, field in cases:
        answer = await node.call("POST", "/v1/tasks", {"type": "t", **body})
        assert answer.status == 422, body
        assert field in [error["field"] for error in answer.body["errors"]], answer.body
    first, second = str(uuid4()), str(uuid4())
    batch = [{"type": "t", "id": first}, {"type": "t", "id": second, "after": [first]}]
    answer = await node.call("POST", "/v1/tasks/batch", {"tasks": batch[::-1]})
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "tasks[0].after")
    assert (await node.call("POST", "/v1/tasks/batch", {"tasks": batch})).status == 201
    assert (await get(node, second))["waits_for"] == [first]
