"""Nodes that share a queue with a rate: real dispatchers, and the real scripts on a simulated Redis.

In virtual time. Redis's clock is the loop's, and can be set.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import anyio
from firing_rig import START_US, FakeDatabase, Firing
from simulated.faults import Chances, Faults, Trace
from simulated.link import Link
from simulated.redis_client import instead_of_redis
from simulated.redis_data import Words
from simulated.redis_server import RedisServer

from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Controlled, Due
from duly.storage import keys
from duly.storage.queues import Control
from duly.storage.slots import DueRow
from duly.storage.streams import Streams

SHARES = {"a": (0, 1, 2), "b": (3, 4, 5), "c": (6, 7)}


class Cluster:
    """Nodes `a`, `b` and `c`, and what they have put into the stream of `q`: (seconds, task id)."""

    def __init__(self, latency_s: float = 0.001) -> None:
        self.database = FakeDatabase()
        self.clock_s = 0.0
        """What was added to Redis's clock."""
        faults = Faults(random.Random(1), Chances(), latency_s)
        self.redis = RedisServer("redis", faults, Trace(False), self._redis_ms)
        self.redis.on_added = self._added
        self.out: list[tuple[float, UUID]] = []
        with instead_of_redis(self._find):
            self.nodes = {name: self._node(name, slots) for name, slots in SHARES.items()}

    def _node(self, name: str, slots: Sequence[int]) -> Firing:
        node = Firing(Options(), self.database, slots)
        node.context.node_id = name
        node.context.streams = Streams(f"{name}/redis", name, 5.0)
        return node

    def _find(self, url: str) -> tuple[RedisServer, Link]:
        return self.redis, Link(url.partition("/")[0])

    def _redis_ms(self) -> int:
        return START_US // 1000 + int((asyncio.get_running_loop().time() + self.clock_s) * 1000)

    def _added(self, key: bytes, words: Words) -> None:
        if key == keys.tasks("q").encode():
            task_id = UUID(words[words.index(b"id") + 1].decode())
            self.out.append((asyncio.get_running_loop().time(), task_id))

    def control(self, *controls: Control) -> None:
        """As the readers of the controls do, on every node."""
        for node in self.nodes.values():
            node.context.controls.update(controls, 0.0)
            node.context.boxes.dispatcher.offer(Controlled())

    async def send(self, rows: Sequence[DueRow]) -> None:
        """Put rows into the store, and tell their nodes that they are due."""
        self.database.put(*rows)
        for node in self.nodes.values():
            own = [row for row in rows if row.slot in node.slots]
            for begin in range(0, len(own), 500):
                await node.context.boxes.dispatcher.send(Due(own[begin : begin + 500]))

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncIterator[None]:
        """Run all nodes, or those named; a worker that takes everything at once."""
        async with AsyncExitStack() as stack:
            for name in names or self.nodes:
                await stack.enter_async_context(self.nodes[name].running(Dispatcher))
            worker = asyncio.create_task(self._work())
            yield
            worker.cancel()

    async def _work(self) -> None:
        stream = keys.tasks("q").encode()
        while True:
            await anyio.sleep(0.01)
            for entry, _ in self.redis.run([b"XRANGE", stream, b"-", b"+"]):
                self.redis.run([b"XDEL", stream, entry])

    def most_within(self, seconds: float) -> int:
        """The most that went out in any so many seconds."""
        times = [at for at, _ in self.out]
        most = first = 0
        for last in range(len(times)):
            while times[last] - times[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    def share(self, name: str) -> int:
        """How many of those that went out were this node's."""
        return sum(self.database.claimed[task_id] == name for _, task_id in self.out)
