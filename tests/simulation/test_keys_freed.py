"""How long a killed worker's places under a concurrency key stay taken: the bound, in virtual time."""

import asyncio
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from simulated.client import Client
from simulated.world import simulate
from waiting import wait_for

from duly.storage import keys
from duly.storage.submitting import NewTask
from duly.wheel.durations import from_us

LIMIT = 3
FREED_S = 12.0
"""What docs/concurrency.md promises, from the kill on."""


class Scenario(Client):
    """Tasks of one key that run for ever, and a worker that is killed in the middle of them."""

    def _new_task(self) -> NewTask:
        return super()._new_task()._replace(
            due=from_us(self._world.now_us()), concurrency_key="k", concurrency_limit=LIMIT,
            on_lost="fail", timeout=1_000.0, schedule=None, misfire_grace=None, key=None,
        )  # fmt: skip

    def _running(self) -> set[UUID]:
        rows = self._world.store.tasks.values()
        keyed = [row for row in rows if row["concurrency_key"] == "k"]  # not what follows them
        running = {row["id"] for row in keyed if row["status"] == "running"}
        assert len(running) <= LIMIT, "one too many"
        return running

    async def life(self) -> None:
        """Kill a worker that works; how long until as many others run in place of its tasks."""
        world = self._world
        await asyncio.sleep(20)  # the nodes trust nobody's silence before
        for _ in range(3 * LIMIT):
            self._periodic = False
            await self._submit()
        before = await wait_for(self._all_delivered, 60, "the key is full, and they are at work")
        await asyncio.sleep(self._rng.random() * 2 * keys.LIVENESS_EVERY_S)
        worker = max(world.workers, key=lambda one: len(self._held_by(one.name)))
        held = self._held_by(worker.name)
        assert held
        worker.kill()
        killed_us = world.now_us()

        def others() -> bool:
            return len(self._running() - before) >= len(held)

        await wait_for(others, 60, "others run in their place")
        world.freed_s = (world.now_us() - killed_us) / 1e6

    def _all_delivered(self) -> set[UUID] | None:
        running = self._running()
        return running if len(running & self._world.takers.keys()) == LIMIT else None

    def _held_by(self, worker: str) -> list[UUID]:
        return [one for one, taker in self._world.takers.items() if taker == worker]


def prepare(world: Any) -> Any:
    """One client, two workers; no attempt ends by itself, and who takes a task is noted."""
    world.plan = world.plan._replace(tasks=1, workers=2, submit_within_s=0.0)
    world.outcome = lambda *_: ("completed", 10_000.0)
    world.takers, world.freed_s = {}, None
    delivered = world.redis["redis"].commands.delivered

    def note(key: bytes, consumer: bytes, words: Any) -> None:
        delivered(key, consumer, words)
        if key.endswith(b":tasks"):
            said = dict(zip(words[::2], words[1::2], strict=True))
            world.takers[UUID(said[b"id"].decode())] = consumer.decode()

    world.redis["redis"].commands.delivered = note
    return world


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_worker_s_places_are_free_within_12_s(seed: int) -> None:
    worlds: list[Any] = []
    with patch("simulated.world.Client", Scenario):
        simulate(seed, only=frozenset(), prepare=lambda world: worlds.append(prepare(world)))
    (world,) = worlds
    assert world.freed_s is not None
    assert keys.LIVENESS_TTL_MS / 1000 - keys.LIVENESS_EVERY_S < world.freed_s <= FREED_S
