"""Redis in every kind of trouble: what was accepted is kept, is shown, is logged once, and goes on by itself.

The outages last as long as it takes to be noticed; nothing depends on their length.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import pytest
from node_rig import Answer, RunningNode, running_node
from private_valkey import PrivateValkey
from redis.asyncio import Redis
from store_rig import query
from waiting import wait_for
from worker_rig import running

import duly

TASKS = 60
WRITTEN = ("--appendonly", "yes", "--appendfsync", "always")


async def command(server: PrivateValkey, *words: str | int) -> None:
    async with Redis.from_url(server.url, protocol=2, socket_timeout=10) as client:
        await client.execute_command(*words)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def down(server: PrivateValkey) -> AsyncIterator[None]:
    server.stop()
    yield
    server.start()


@asynccontextmanager
async def standing_still(server: PrivateValkey) -> AsyncIterator[None]:
    """Connections stay open, and nothing is answered: as with packets that are swallowed."""
    server.pause()
    yield
    server.resume()


@asynccontextmanager
async def read_only(server: PrivateValkey) -> AsyncIterator[None]:
    await command(server, "REPLICAOF", "127.0.0.1", 1)
    yield
    await command(server, "REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def out_of_memory(server: PrivateValkey) -> AsyncIterator[None]:
    await command(server, "CONFIG", "SET", "maxmemory", 1)
    yield
    await command(server, "CONFIG", "SET", "maxmemory", 0)


@asynccontextmanager
async def loading(server: PrivateValkey) -> AsyncIterator[None]:
    """Something that listens on its port and says that it is loading its data."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = 0
        while data := await reader.read(65536):
            begun = len(re.findall(rb"(?:^|\n)\*\d+\r", data))
            writer.write(b"-LOADING Redis is loading the dataset in memory\r\n" * begun)
            said += begun
        writer.close()

    server.stop()
    fake = await asyncio.start_server(refuse, "127.0.0.1", server.port)
    yield
    fake.close()
    server.start()


class Outage(NamedTuple):
    begin: Callable[[PrivateValkey], AbstractAsyncContextManager[None]]
    options: tuple[str, ...] = ()


OUTAGES = {
    "down, then without its data": Outage(down),
    "down, then with its data": Outage(down, WRITTEN),
    "standing still": Outage(standing_still),
    "read-only": Outage(read_only),
    "out of memory": Outage(out_of_memory),
    "loading": Outage(loading, WRITTEN),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_c33_an_outage_of_redis(
    fresh_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    caplog.set_level(logging.INFO)
    outage = OUTAGES[name]
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"), *outage.options)
    server.start()
    over = asyncio.Event()
    effects: Counter[str] = Counter()
    worker = duly.Worker(server.url, concurrency=10, id="sdk")

    @worker.task("t")
    async def work(ctx: duly.Context) -> None:
        effects[ctx.id] += 1

    @worker.task("long")
    async def long(ctx: duly.Context) -> str:
        effects[ctx.id] += 1
        await over.wait()
        return "said while Redis was away"

    try:
        async with (
            running_node(fresh_database, server.url, redis_timeout_s=1.0) as node,
            running(worker),
        ):
            ids = await node.client.submit_batch([{"type": "t"}] * TASKS)
            longs = await node.client.submit_batch([{"type": "long", "timeout": 600}] * 3)
            await ended(node, TASKS)
            await wait_for(lambda: len(effects) == TASKS + 3, 30, "the long ones have begun")
            async with outage.begin(server):
                answer = await wait_for(lambda: red(node), 60, "readiness names Redis")
                assert answer.body["parts"]["postgres"]["ok"]
                over.set()
                ids += await node.client.submit_batch([{"type": "t"}] * TASKS)
                for _ in range(5):
                    ids.append((await node.client.submit("t", delay=0.2)).id)
                failing = await wait_for(lambda: several(node), 60, "several kinds of work fail")
                assert all(one["since"] and one["detail"] for one in failing.values())
                await asyncio.sleep(3)  # long enough for a hot loop to show
                assert await node.count("finished_tasks") == TASKS
            await ended(node, len(ids) + 3)
            await wait_for(lambda: green(node), 60, "readiness is green again")
            rows = await query(
                node.context.db,
                "select count(*), count(distinct task_id),"
                " count(*) filter (where outcome <> 'completed') from runs",
            )
            assert tuple(rows[0]) == (len(ids) + 3, len(ids) + 3, 0)
            said = [(await node.client.get(one)).result for one in longs]
            assert said == ["said while Redis was away"] * 3
    finally:
        server.stop()
    assert set(effects) == {str(one) for one in (*ids, *longs)}
    if name != "down, then without its data":
        assert all(effects[str(one)] == 1 for one in longs), "a long run was begun twice"
    assert_logged_once(caplog)


def assert_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each kind of work says once that it fails; some fail again once, as others mend."""
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("duly")]
    begun = Counter(line.partition(" fails, trying on")[0] for line in lines if " fails, " in line)
    assert begun, "nothing was logged"
    assert max(begun.values()) <= 3, begun
    assert len(lines) < 100, "a hot loop"


async def ended(node: RunningNode, count: int) -> None:
    async def enough() -> bool:
        return await node.count("finished_tasks") == count

    await wait_for(enough, 60, f"{count} tasks have ended", poll_s=0.1)


async def red(node: RunningNode) -> Answer | None:
    answer = await node.call("GET", "/readyz")
    return answer if answer.status == 503 and not answer.body["parts"]["redis"]["ok"] else None


async def several(node: RunningNode) -> dict[str, dict[str, str]] | None:
    answer = await node.call("GET", "/readyz")
    failing: dict[str, dict[str, str]] = answer.body["parts"]["redis"]["failing"]
    return failing if failing else None


async def green(node: RunningNode) -> bool:
    return (await node.call("GET", "/readyz")).status == 200
