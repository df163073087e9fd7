"""Liveness and readiness of a running node."""

from node_rig import RunningNode


async def test_a_running_node_is_alive_and_ready(node: RunningNode) -> None:
    async with node.http.get("/healthz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"ok": True}
    body = (await node.ready()).body
    assert body["ready"] is True
    assert body["node"] == node.context.node_id
    assert {name for name, part in body["parts"].items() if part["ok"]} == {
        "postgres", "redis", "slots", "queues",
    }  # fmt: skip


async def test_submit_and_get_through_the_client(node: RunningNode) -> None:
    task = await node.client.submit("email.send", {"to": "a@example.org"}, delay=1800)
    assert (await node.client.get(task.id)).payload == {"to": "a@example.org"}
    assert await node.count() == 1
