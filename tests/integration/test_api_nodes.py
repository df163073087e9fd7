"""GET /v1/nodes, and nodes whose time zone data differ."""

import os
import socket

import msgspec
from node_rig import RunningNode, running_node
from waiting import wait_for

from duly.actors import node_info
from duly.storage.members import Members
from duly.storage.slots import SLOTS
from duly.wheel import zones
from duly.wheel.durations import from_us, parse_time


async def test_the_live_nodes(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url) as first:
        async with running_node(fresh_database, redis_url, owns_slots=False) as second:

            async def shared() -> bool:
                items = (await second.call("GET", "/v1/nodes")).body["items"]
                return [node["slots"] for node in items] == [SLOTS // 2, SLOTS // 2]

            await wait_for(shared, 30, "both nodes are listed with half of the slots each")
            answer = await first.call("GET", "/v1/nodes")
            assert answer.status == 200
            assert answer.body["next_cursor"] is None
            nodes = answer.body["items"]
            assert [node["id"] for node in nodes] == [
                first.context.node_id, second.context.node_id,
            ]  # fmt: skip
            for node in nodes:
                assert node["host"] == socket.gethostname()
                assert node["pid"] == os.getpid()
                assert node["tzdata"] == zones.VERSION
                now = from_us(first.context.clock.now_us())
                assert abs((now - parse_time(node["started_at"])).total_seconds()) < 600
        gone = (await first.call("GET", "/v1/nodes")).body["items"]
        assert [node["id"] for node in gone] == [first.context.node_id]
        assert (await first.call("GET", "/v1/nodes?limit=5")).fields == ["limit"]


async def test_c11_other_zone_data_of_another_node_are_told(
    node: RunningNode, redis_url: str
) -> None:
    path = "/v1/schedules/preview?cron=5+*+*+*+*"
    assert (await node.call("GET", path)).body["notes"] == []
    said = msgspec.json.decode(node_info.own(from_us(0), 0))
    members = Members(redis_url, "other", 60, 5)
    try:
        await members.beat(msgspec.json.encode({**said, "tzdata": "2020a"}))

        async def told() -> bool:
            notes = (await node.call("GET", path)).body["notes"]
            return any(f"2020a, {zones.VERSION}" in note for note in notes)

        await wait_for(told, 30, "the preview tells that zone data differ")
        assert (await node.call("GET", "/v1/schedules/preview?every=65")).body["notes"] == []
        listed = (await node.call("GET", "/v1/nodes")).body["items"]
        assert [one["tzdata"] for one in listed] == ["2020a", zones.VERSION]
    finally:
        await members.leave()
        await members.close()
