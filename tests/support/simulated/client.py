"""A client: submits, cancels and changes tasks by the calls that the HTTP handlers make."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.actors import wakes
from duly.actors.cancelling import cancel
from duly.actors.context import Context
from duly.actors.messages import Submit
from duly.actors.runtime import ActorCrashedError, MailboxClosedError, Reply
from duly.actors.submitter import tell, times
from duly.nodes.api.problems import Problem
from duly.nodes.api.rescheduling import Refused, Rescheduling
from duly.nodes.api.submissions import periodic
from duly.storage import courses as stored
from duly.storage import submitting, tasks
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.storage.submitting import NewTask, Submitted
from duly.storage.waits import WAITING, CannotWaitError
from duly.wheel.durations import from_us
from duly.wheel.schedule import parse
from simulated.faults import InjectedCrash

_ANSWER_S = 8.5
_FAILED = (
    TimeoutError, StoreUnavailableError, ActorCrashedError, MailboxClosedError, InjectedCrash,
)  # fmt: skip
_TRIES = 12
_UNNOTED: Any = None  # the audit log is not simulated


class Client:
    """One task from its submission on; `life` ends when it wants no more of it."""

    def __init__(self, world: Any, number: int, rng: random.Random) -> None:
        self._world = world
        self._number = number
        self._rng = rng
        # Apart, so that neither kind of task takes the other's chances.
        self._periodic = world.seed % 3 == 0 and rng.random() < 0.7
        self._keyed = world.seed % 5 == 4 and number % 4 != 3
        self._followed = world.seed % 4 == 1
        self._waits = world.seed % 4 == 1 and not self._periodic and number % 2 == 1

    async def life(self) -> None:
        """Submit, then perhaps change or cancel."""
        rng, pace = self._rng, self._world.plan.pace
        await asyncio.sleep(rng.random() * self._world.plan.submit_within_s)
        task_id = await self._submit()
        if task_id is None:
            return
        self._world.ledger.accepted[task_id] = self._world.now_us()
        if self._periodic:
            await self._tamper(task_id)
        if rng.random() < 0.25:
            await self._bide(rng.random() * 4 * pace, task_id)
            await self._patch(task_id)
        if rng.random() < 0.25:
            await self._bide(rng.random() * 6 * pace, task_id)
            await self._cancel(task_id)

    async def _bide(self, wait_s: float, task_id: UUID) -> None:
        """Wait; but when the task is over, for another moment at most."""
        over = self._world.ledger.over[task_id]
        try:
            async with asyncio.timeout(wait_s):
                await over.wait()
                await asyncio.sleep(self._rng.random() * 0.1)
        except TimeoutError:
            pass

    def _new_task(self) -> NewTask:
        rng, pace = self._rng, self._world.plan.pace
        now = from_us(self._world.now_us())
        delay_s = pace * rng.choice((0.0, rng.random() * 2, rng.random() * 8))
        due = now + timedelta(seconds=delay_s)
        new = NewTask(
            id=UUID(int=rng.getrandbits(128)), type="t", queue=rng.choice(self._world.queues),
            payload="{}", due=due, max_retries=rng.choice((0, 1, 3)),
            backoff='{"kind": "fixed", "delay": 0.5}', timeout=pace * rng.choice((2.0, 6.0)),
            misfire_grace=rng.choice((None, None, None, 30.0)),
            on_lost=rng.choice(("retry", "retry", "fail")), priority=rng.randrange(10),
            key=f"key-{self._number}", fingerprint=b"1", tags="{}", own_id=False,
            created_at=now, occurrence=due,
        )  # fmt: skip
        if self._keyed:
            limit = 1 + self._world.seed % 2
            new = new._replace(concurrency_key="k", concurrency_limit=limit)
        if self._followed:
            new = new._replace(on_success=self._then(1), on_failure=self._then(1))
        if self._waits:
            new = self._waiting(new)
        if not self._periodic:
            return new
        grace, overrun = rng.choice((None, 0.5, 3.0)), rng.choice(("skip", "queue"))
        return periodic(new._replace(misfire_grace=grace, overrun=overrun), self._schedule(), None)

    def _then(self, place: int) -> str | None:
        """What follows; at most two in a row."""
        rng, pace = self._rng, self._world.plan.pace
        if rng.random() < 0.3:
            return None
        said: dict[str, Any] = {
            "type": "t", "queue": rng.choice(self._world.queues), "payload": {}, "tags": {},
            "delay": pace * rng.choice((0.0, rng.random())), "max_retries": rng.choice((0, 1)),
            "timeout": pace * 3.0, "on_lost": rng.choice(("retry", "fail")), "priority": 5,
        }  # fmt: skip
        for name in ("on_success", "on_failure") if place == 1 else ():
            if (more := self._then(2)) is not None:
                said[name] = msgspec.json.decode(more)
        return msgspec.json.encode(said).decode()

    def _waiting(self, new: NewTask) -> NewTask:
        """The task, after some that were accepted before, if there are any."""
        known = sorted(self._world.ledger.accepted)
        some = self._rng.sample(known, min(len(known), self._rng.randint(1, 3)))
        if not some:
            return new
        return new._replace(after=msgspec.json.encode(some).decode(), due=WAITING)

    def _schedule(self) -> str:
        """One that ends by itself."""
        rng, pace = self._rng, self._world.plan.pace
        every = max(0.1, round(pace * rng.choice((0.4, 1.0, 2.5)), 3))
        said: dict[str, Any] = {"every": every, "jitter": rng.choice((None, every / 2))}
        if rng.random() < 0.5:
            said["max_runs"] = rng.randint(1, 4)
        else:
            now = from_us(self._world.now_us())
            said["end_at"] = (now + timedelta(seconds=pace * rng.uniform(4, 12))).isoformat()
        return parse(said, from_us(self._world.now_us())).text()

    async def _tamper(self, task_id: UUID) -> None:
        """Do to a periodic task what clients may."""
        rng, pace = self._rng, self._world.plan.pace
        for _ in range(rng.choice((0, 0, 1, 2))):
            await self._bide(rng.random() * 3 * pace, task_id)
            act = rng.choice((self._pause, self._run_now, self._reschedule))
            await act(task_id)

    async def _pause(self, task_id: UUID) -> None:
        await self._try(lambda c: stored.pause(c.api_db, task_id, _now(c), paused=True))
        for wait_s in (
            self._rng.random() * 4 * self._world.plan.pace,
            *[0.5] * 200,
        ):  # until it surely is resumed
            await self._bide(wait_s, task_id)
            if await self._try(lambda c: Rescheduling(c).resume(task_id, _UNNOTED)):
                return

    async def _run_now(self, task_id: UUID) -> None:
        self._world.ledger.grids.extra_runs[task_id] += 1
        await self._try(lambda c: Rescheduling(c).run_now(task_id, _UNNOTED))

    async def _reschedule(self, task_id: UUID) -> None:
        text = self._schedule()
        period = timedelta(seconds=msgspec.json.decode(text)["every"])
        change = tasks.Change(schedule=text, interval=period, may_run=True)
        await self._try(lambda c: Rescheduling(c).patch(task_id, change, None, _UNNOTED))

    async def _try(self, act: Callable[[Context], Awaitable[Any]]) -> bool:
        """Whether it was answered; refusals are answers."""
        context: Context | None = self._world.any_context(self._rng)
        if context is None:
            return False
        try:
            await act(context)
        except (StoreUnavailableError, InjectedCrash):
            return False
        except (Refused, Problem):
            pass
        return True

    async def _submit(self) -> UUID | None:
        new = self._new_task()
        for _ in range(_TRIES):
            node = self._world.any_node(self._rng)
            if node is not None and node.context.clock.synced:
                answer = await self._try_to_submit(node, new)
                if answer is not None:
                    return answer.id if answer.slot is not None else answer.first_id
            new = new._replace(id=UUID(int=self._rng.getrandbits(128)))
            await asyncio.sleep(0.2 + self._rng.random())
        return None

    async def _try_to_wait(self, context: Context, new: NewTask) -> Submitted | None:
        """One that others have to complete before; refused if one of them has not."""
        try:
            answers = await submitting.submit_all(context.api_db, [new], *times(context))
        except (CannotWaitError, *_FAILED):
            return None
        await tell(context, [new], answers)
        return answers[0]

    async def _try_to_submit(self, node: Any, new: NewTask) -> Submitted | None:
        if new.after is not None:
            return await self._try_to_wait(node.context, new)
        reply: Reply[Submitted] = Reply()
        if not node.context.boxes.submitter.offer(Submit(new, reply)):
            return None
        self._world.replies.append((node, reply))
        try:
            return await reply.wait(_ANSWER_S)
        except _FAILED:
            return None

    async def _cancel(self, task_id: UUID) -> None:
        for _ in range(_TRIES):
            context: Context | None = self._world.any_context(self._rng)
            if context is not None:
                try:
                    done = await cancel(context.api_db, context.clock, task_id)
                except StoreUnavailableError:
                    pass
                else:
                    if done is not None:
                        await self._cancelled(context, done)
                    return
            await asyncio.sleep(0.5)

    async def _cancelled(self, context: Context, done: tasks.Cancelled) -> None:
        row, ledger = done.row, self._world.ledger
        if ledger.last_status.get(row.id, "pending") == "pending":
            ledger.cancelled[row.id] = row.version
        if done.token == 0:
            return
        try:
            holder = await context.streams.supersede(row.queue, row.id, row.version)
            if holder is not None:
                message = msgspec.json.encode({"cancel": str(row.id), "token": done.token})
                await context.streams.signals.tell_worker(holder, message)
        except TROUBLE:
            pass  # the cancel stands

    async def _patch(self, task_id: UUID) -> None:
        context: Context | None = self._world.any_context(self._rng)
        if context is None:
            return
        now = from_us(context.clock.now_us())
        due = now + timedelta(seconds=self._rng.random() * 6 * self._world.plan.pace)
        try:
            done = await tasks.patch(context.api_db, task_id, tasks.Change(due=due), None, now)
        except StoreUnavailableError:
            return
        if done is not None and done.changed:
            await wakes.wake(context, [done.waiting])


def _now(context: Context) -> datetime:
    return from_us(context.clock.now_us())
