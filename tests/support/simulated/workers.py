"""A worker that follows the protocol (design, section 7), on the product's own `Conveyor`."""

import asyncio
import contextvars
import random
from typing import Any
from uuid import UUID

import msgspec

from duly.storage import claims, keys
from duly.storage.conveyor import Conveyor, Delivery, Entry, GroupMissingError
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us
from simulated.link import Link
from simulated.loop import PROCESS

_CONCURRENCY = 3


class Worker:
    """One process; killed or paused by the world."""

    def __init__(self, world: Any, name: str, rng: random.Random) -> None:
        self.name = name
        self.link = Link(name)
        world.links[name] = self.link
        self._world = world
        self._rng = rng
        self._conveyor = Conveyor(f"{name}/redis", name)
        self._held: dict[tuple[str, bytes], asyncio.Task[None]] = {}
        self.task: asyncio.Task[None]

    def begin(self) -> None:
        """Start the process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.name)
        self.task = asyncio.get_running_loop().create_task(self._work(), context=context)

    def kill(self) -> None:
        """As kill -9."""
        self.link.dead = True
        for task in (self.task, *self._held.values()):
            task.cancel()
        self._world.resume(self.name)  # it may be paused

    async def _work(self) -> None:
        beating = asyncio.ensure_future(self._beat())
        try:
            overlooked = False
            while True:
                try:
                    if overlooked:
                        await self._look_for_overlooked()
                        overlooked = False
                    await self._read()
                except GroupMissingError:
                    await self._make_groups()
                except TROUBLE:
                    overlooked = True
                    await asyncio.sleep(0.3)
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        value = msgspec.json.encode({"concurrency": _CONCURRENCY})
        while True:
            try:
                await self._conveyor.beat(value)
                await asyncio.sleep(keys.LIVENESS_EVERY_S)
            except TROUBLE:
                await asyncio.sleep(0.5)

    async def _make_groups(self) -> None:
        try:
            for queue in self._world.queues:
                await self._conveyor.create_group(queue)
        except TROUBLE:
            await asyncio.sleep(0.3)

    async def _read(self) -> None:
        room = _CONCURRENCY - len(self._held)
        if room <= 0:
            await asyncio.wait(self._held.values(), return_when=asyncio.FIRST_COMPLETED)
            return
        for entry in await self._conveyor.read(self._world.queues, room, 1000):
            self._take(entry)

    async def _look_for_overlooked(self) -> None:
        for queue in self._world.queues:
            pending = await self._conveyor.pending(queue)
            missed = [one for one in pending if (queue, one) not in self._held]
            for entry in await self._conveyor.fetch(queue, missed):
                self._take(entry)

    def _take(self, entry: Delivery) -> None:
        key = (entry.queue, entry.entry_id)
        if key in self._held:
            return
        handling = self._handle(entry) if isinstance(entry, Entry) else self._drop(entry)
        task = asyncio.ensure_future(handling)
        self._held[key] = task
        task.add_done_callback(lambda _: self._held.pop(key, None))

    async def _drop(self, entry: Delivery) -> None:
        await self._surely_report(entry, [])

    async def _handle(self, entry: Entry) -> None:
        ledger, task_id = self._world.ledger, UUID(entry.id)
        if not await self._may_begin(entry):
            await self._drop(entry)
            return
        ledger.start(task_id, entry.token, entry.confirm)
        started = self._now_ms()
        outcome, run_s = self._world.outcome(self._rng, entry)
        await asyncio.sleep(run_s)
        words: list[str] = [
            "id", entry.id, "token", str(entry.token), "outcome", outcome, "worker", self.name,
            "started", str(started), "finished", str(self._now_ms()),
        ]  # fmt: skip
        words += {
            "completed": ["result", "1"],
            "failed": ["error", '"no"'],
            "snoozed": ["delay", "0.5"],
        }[outcome]
        await self._surely_report(entry, words)

    async def _may_begin(self, entry: Entry) -> bool:
        while True:
            try:
                token = (await self._conveyor.tokens(entry.queue, [entry.id]))[0]
                break
            except TROUBLE:
                await asyncio.sleep(0.3)
        if token != str(entry.token).encode():
            return False
        return not entry.confirm or await self._confirmed(entry)

    async def _confirmed(self, entry: Entry) -> bool:
        start_id = f"{self.name}-{entry.entry_id.decode()}"
        while True:
            context = self._world.any_context(self._rng)
            try:
                if context is not None:
                    now = from_us(context.clock.now_us())
                    task_id = UUID(entry.id)
                    return await claims.start(
                        context.api_db, task_id, entry.token, start_id, self.name, now
                    )
            except StoreUnavailableError:
                pass
            await asyncio.sleep(0.3)

    async def _surely_report(self, entry: Delivery, words: list[str]) -> None:
        while True:
            try:
                await self._conveyor.report(entry.queue, [(entry.entry_id, words)])
                return
            except TROUBLE:
                await asyncio.sleep(0.3)

    def _now_ms(self) -> float:
        return float(self._world.now_us() / 1000)
