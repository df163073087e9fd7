"""A node's firing path: what is due is claimed and handed out, what was missed is caught up with."""

import asyncio
import contextvars
import heapq
import itertools
import random
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from simulated.database import SimulatedDatabase
from simulated.link import Link
from simulated.loop import PROCESS

from duly.actors import recording, wakes
from duly.actors.catchup import CatchUp
from duly.actors.context import Context, Options
from duly.actors.messages import Missed, Schedule
from duly.storage import claims, slots
from duly.storage.claims import Claimed, Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import Cursor, DueRow
from duly.wheel.durations import from_us

_BATCH = 200
_LOOK_S = 3600.0
_SOON_S = 11.0  # after a take-over: what was claimed and not handed out shows then
_GRACE_US = 10_000_000
_AGAIN_S = 30.0
_WAIT_MAX_S = 600.0  # a timer that is cancelled stays in memory for as long
_FIRST = Cursor(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))
_EVER = datetime(2999, 1, 1, tzinfo=UTC)


class Node:
    """One process. `world` hands slots to it, and carries what it publishes."""

    def __init__(self, world: Any, name: str, rng: random.Random) -> None:
        self.name = name
        self.dead = False
        self.epochs: dict[int, int] = {}
        self.link = Link(name)
        self.db = cast(Any, SimulatedDatabase(world.postgres, world.store, self.link))
        clock = SimpleNamespace(now_us=world.now_us, monotonic=asyncio.get_running_loop().time)
        nothing = cast(Any, None)
        # A horizon of more than a year: there is no prefetcher that would bring what is far away.
        self.context = Context(
            node_id=name, options=Options(horizon_s=1e9), db=self.db, api_db=self.db,
            streams=cast(Any, SimpleNamespace(signals=SimpleNamespace(wake=world.pass_on))), lease_servers=nothing,
            members=nothing, statistics=nothing, clock=cast(Any, clock),
        )  # fmt: skip
        self._world = world
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[datetime, int, DueRow]] = []
        self._numbers = itertools.count()
        self._news = asyncio.Event()
        self._look_now = asyncio.Event()
        self._process = contextvars.copy_context()
        self._process.run(PROCESS.set, name)
        self._tasks: set[asyncio.Task[Any]] = set()
        catchup = CatchUp(self.context)
        for life in (self._fire(), self._hear(), self._look(), catchup.run()):
            self.spawn(life)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Work that ends with the process."""
        task = self._loop.create_task(work, context=self._process)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.judge.breaks(f"{self.name}: {error!r}")

    def kill(self) -> None:
        """As kill -9."""
        self.dead = True
        self.link.dead = True
        for task in list(self._tasks):
            task.cancel()

    # Slots

    async def take(self, wanted: list[int]) -> None:
        """Own these slots, and know what waits in them."""
        try:
            taken = await slots.take(self.db, wanted, self.name, self._now())
            self.epochs |= taken.epochs
            if taken.epochs:
                self._add(await self._waiting(taken.epochs, _EVER))
        except StoreUnavailableError:
            pass  # whoever looks after the slots finds that nobody has them
        self._loop.call_later(_AGAIN_S, self._look_now.set)

    def let_go(self, slot: int) -> None:
        """Another one has it."""
        self.epochs.pop(slot, None)

    async def _waiting(self, of: Iterable[int], before: datetime) -> list[DueRow]:
        return (await slots.due(self.db, dict.fromkeys(of, _FIRST), before, 10_000)).rows

    # Firing

    def _add(self, rows: Iterable[DueRow]) -> None:
        for row in rows:
            heapq.heappush(self._due, (row.next_run_at, next(self._numbers), row))
        self._news.set()

    async def _hear(self) -> None:
        box = self.context.boxes.ticker
        while True:
            for message in await box.receive_batch(100):
                assert isinstance(message, Schedule)
                self._add(message.rows)
            box.handled()

    async def _fire(self) -> None:
        while True:
            self._news.clear()
            now = self._now()
            rows: dict[UUID, DueRow] = {}
            while self._due and self._due[0][0] <= now and len(rows) < _BATCH:
                row = heapq.heappop(self._due)[2]
                if row.slot in self.epochs:
                    rows[row.id] = row  # the latest that was heard of it
            if rows:
                await self._claim(list(rows.values()))
                continue
            wait_s = (self._due[0][0] - now).total_seconds() + 0.001 if self._due else _WAIT_MAX_S
            timer = self._loop.call_later(min(wait_s, _WAIT_MAX_S), self._news.set)
            await self._news.wait()
            timer.cancel()

    async def _claim(self, rows: list[DueRow]) -> None:
        """As the dispatcher's `Firing`: claim, then hand out; the rest is late, or was changed."""
        now = self._now()
        try:
            claim = await claims.claim(self.db, self.name, rows, self.epochs, now)
        except StoreUnavailableError as error:
            await self._in_doubt(rows, now, error)
            return
        for claimed in claim.tasks:
            self._world.publish(claimed)
        if not claim.owned:
            await self._who_owns(rows)
            return
        got = {claimed.id for claimed in claim.tasks}
        missing = [row.id for row in rows if row.id not in got]
        if missing:
            self.context.boxes.catchup.offer(Missed(missing))

    async def _in_doubt(
        self, rows: list[DueRow], now: datetime, error: StoreUnavailableError
    ) -> None:
        try:
            if error.in_doubt:
                await error.settled()
                found: list[Claimed] = await claims.claimed_by(self.db, self.name, rows, now)
                for claimed in found:
                    self._world.publish(claimed)
                got = {claimed.id for claimed in found}
                rows = [row for row in rows if row.id not in got]
        except StoreUnavailableError:
            pass
        await asyncio.sleep(_AGAIN_S)
        self._add(rows)

    async def _who_owns(self, rows: list[DueRow]) -> None:
        try:
            found = await slots.states(self.db, list(self.epochs))
            for slot, state in found.items():
                if (state.owner, state.epoch) != (self.name, self.epochs.get(slot)):
                    self.epochs.pop(slot, None)
        except StoreUnavailableError:
            await asyncio.sleep(_AGAIN_S)
        self._add(rows)

    # What a sweep and the reaper find

    async def _look(self) -> None:
        while True:
            timer = self._loop.call_later(_LOOK_S * self._rng.uniform(0.5, 1.5), self._look_now.set)
            await self._look_now.wait()
            timer.cancel()
            self._look_now.clear()
            try:
                await self._sweep()
            except StoreUnavailableError:
                self._loop.call_later(_AGAIN_S, self._look_now.set)

    async def _sweep(self) -> None:
        now_us = self._world.now_us()
        self._add(await self._waiting(list(self.epochs), from_us(now_us)))
        before = from_us(now_us - _GRACE_US)
        for row in await slots.running_since(self.db, list(self.epochs), before, 10_000):
            where = self._world.whereabouts(row.id, row.version)
            if where == "nowhere":
                for claimed in await claims.running(self.db, [(row.id, row.version)]):
                    self._world.publish(claimed)
            elif where == "dead":
                await self.record(Ended(row.id, row.version, "lost", "w", None, self._now()))

    async def record(self, ended: Ended) -> None:
        """Record an end, and tell of what waits again."""
        recorded = await recording.record(self.db, [ended], self._now())
        await wakes.wake(self.context, recorded.waiting)

    def _now(self) -> datetime:
        return from_us(self._world.now_us())
