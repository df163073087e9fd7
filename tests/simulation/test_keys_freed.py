"""How long a killed worker's places under a concurrency key stay taken: the bound, in virtual time."""

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from simulated.client import Client
from simulated.world import World, simulate

from duly.storage import keys
from duly.storage.submitting import NewTask
from duly.wheel.durations import from_us

LIMIT = 3
FREED_S = 12.0
"""What docs/concurrency.md promises, from the kill on."""


class Scenario(Client):
    """Tasks of one key that run for ever, and a worker that is killed in the middle of them."""

    freed_s: float | None = None

    def _new_task(self) -> NewTask:
        return super()._new_task()._replace(
            due=from_us(self._world.now_us()), concurrency_key="k", concurrency_limit=LIMIT,
            on_lost="fail", timeout=1_000.0, schedule=None, misfire_grace=None, key=None,
        )  # fmt: skip

    def _running(self) -> set[UUID]:
        rows = self._world.store.tasks.values()
        running = {row["id"] for row in rows if row["status"] == "running"}
        assert len(running) <= LIMIT, "one too many"
        return running

    async def life(self) -> None:
        """Kill a worker that works; how long until as many others run in place of its tasks."""
        world = self._world
        await asyncio.sleep(20)  # the nodes trust nobody's silence before
        for _ in range(3 * LIMIT):
            self._periodic = False
            await self._submit()
        while len(before := self._running()) < LIMIT or not self._delivered(before):
            await asyncio.sleep(0.01)
        await asyncio.sleep(self._rng.random() * 2 * keys.LIVENESS_EVERY_S)
        worker = max(world.workers, key=lambda one: len(self._held_by(one.name)))
        held = self._held_by(worker.name)
        assert held
        worker.kill()
        killed_us = world.now_us()
        while len(self._running() - before) < len(held):
            await asyncio.sleep(0.01)
        Scenario.freed_s = timedelta(microseconds=world.now_us() - killed_us).total_seconds()

    def _delivered(self, tasks: set[UUID]) -> bool:
        return all(one in self._world.takers for one in tasks)

    def _held_by(self, worker: str) -> list[UUID]:
        return [one for one, taker in self._world.takers.items() if taker == worker]


def prepare(world: Any) -> None:
    """One client, two workers; no attempt ends by itself, and who takes a task is noted."""
    world.plan = world.plan._replace(tasks=1, workers=2, submit_within_s=0.0)
    world.outcome = lambda *_: ("completed", 10_000.0)
    world.takers = {}
    delivered = world.redis["redis"].commands.delivered

    def note(key: bytes, consumer: bytes, words: Any) -> None:
        delivered(key, consumer, words)
        if key.endswith(b":tasks"):
            said = dict(zip(words[::2], words[1::2], strict=True))
            world.takers[UUID(said[b"id"].decode())] = consumer.decode()

    world.redis["redis"].commands.delivered = note


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_worker_s_places_are_free_within_12_s(seed: int) -> None:
    Scenario.freed_s = None
    with patch("simulated.world.Client", Scenario):
        simulate(seed, only=frozenset(), prepare=prepare)
    assert Scenario.freed_s is not None
    assert keys.LIVENESS_TTL_MS / 1000 - keys.LIVENESS_EVERY_S < Scenario.freed_s <= FREED_S
