"""GET /v1/nodes, and nodes whose time zone data differ."""

import os
import socket
from typing import Any

import msgspec
from node_rig import RunningNode, running_node
from waiting import wait_for

from duly.actors import node_info
from duly.storage.members import Members
from duly.storage.slots import SLOTS
from duly.wheel import zones
from duly.wheel.durations import from_us, parse_time


async def listed(node: RunningNode) -> list[Any]:
    """The live nodes; asked again while Redis does not answer in time."""

    async def ask() -> list[Any] | None:
        answer = await node.call("GET", "/v1/nodes")
        if answer.status != 200:
            return None
        assert answer.body["next_cursor"] is None
        items: list[Any] = answer.body["items"]
        return items

    return await wait_for(ask, 30, "the nodes are listed")


async def test_the_live_nodes(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url) as first:
        async with running_node(fresh_database, redis_url, owns_slots=False) as second:

            async def shared() -> bool:
                items = await listed(second)
                return [node["slots"] for node in items] == [SLOTS // 2, SLOTS // 2]

            await wait_for(shared, 60, "both nodes are listed with half of the slots each")
            nodes = await listed(first)
            assert [node["id"] for node in nodes] == [
                first.context.node_id, second.context.node_id,
            ]  # fmt: skip
            for node in nodes:
                assert node["host"] == socket.gethostname()
                assert node["pid"] == os.getpid()
                assert node["tzdata"] == zones.VERSION
                now = from_us(first.context.clock.now_us())
                assert abs((now - parse_time(node["started_at"])).total_seconds()) < 600

        async def alone() -> bool:
            return [node["id"] for node in await listed(first)] == [first.context.node_id]

        await wait_for(alone, 30, "the node that has stopped is gone")
        assert (await first.call("GET", "/v1/nodes?limit=5")).fields == ["limit"]


async def test_c11_other_zone_data_of_another_node_are_told(
    node: RunningNode, redis_url: str
) -> None:
    path = "/v1/schedules/preview?cron=5+*+*+*+*"
    assert (await node.call("GET", path)).body["notes"] == []
    said = msgspec.json.decode(node_info.own(node.context, from_us(0), 0))
    members = Members(redis_url, "other", 60, 5)
    try:
        await members.beat(msgspec.json.encode({**said, "tzdata": "2020a"}))

        async def told() -> bool:
            notes = (await node.call("GET", path)).body["notes"]
            return any(f"2020a, {zones.VERSION}" in note for note in notes)

        await wait_for(told, 30, "the preview tells that zone data differ")
        assert (await node.call("GET", "/v1/schedules/preview?every=65")).body["notes"] == []
        nodes = await listed(node)
        assert [one["tzdata"] for one in nodes] == ["2020a", zones.VERSION]
    finally:
        await members.leave()
        await members.close()
