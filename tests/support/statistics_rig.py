"""Nodes that share statistics, without servers."""

import asyncio
from typing import Any, cast

import anyio
from firing_rig import Firing
from redis.exceptions import ConnectionError as RedisConnectionError

from duly.actors.context import Options


class FakeStatistics:
    """Redis, as far as it keeps statistics."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, bytes]] = {}
        self.away = False
        self.reads: list[int] = []
        self.has_read = asyncio.Event()

    def of(self, node: str) -> Any:
        """A node's access."""
        return _Access(self, node)


class _Access:
    def __init__(self, kept: FakeStatistics, node: str) -> None:
        self._all = kept
        self._node = node

    async def write(self, minute: int, figures: bytes) -> None:
        await self._answer()
        self._all.kept.setdefault(minute, {})[self._node] = figures

    async def read(self, minutes: range) -> dict[int, dict[str, bytes]]:
        await self._answer()
        self._all.reads.append(len(minutes))
        self._all.has_read.set()
        return {minute: dict(self._all.kept.get(minute, {})) for minute in minutes}

    async def _answer(self) -> None:
        await anyio.sleep(0.001)
        if self._all.away:
            raise RedisConnectionError("away")


def node(kept: FakeStatistics, name: str, options: Options | None = None) -> Firing:
    """A node that writes to it; none of its tasks is due."""
    firing = Firing(options or Options())
    firing.context.node_id = name
    firing.context.statistics = kept.of(name)
    cast(Any, firing.database)._count_due = lambda slots, now: [{"tasks": 0}]
    return firing
