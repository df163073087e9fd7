"""Sends what the feed holds to all nodes, ten times a second at most, while anybody looks on.

What the changes are of (type, queue, status) is read for all of them together, just before they are sent.
Nothing here may hold up the work: what cannot be sent is counted as left out, and the next message says so.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NoReturn
from uuid import UUID

import anyio
import msgspec

from duly.actors.context import Context
from duly.actors.feed import Change, Told
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import events
from duly.storage.errors import StoreUnavailableError
from duly.storage.events import Facts
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

log = logging.getLogger("duly.broadcaster")

_EVERY_S = 0.1


class Event(msgspec.Struct):
    """A change of a task. `status` is that of the moment in which it was sent, which may be a later one."""

    task_id: UUID
    change: Change
    status: str
    type: str
    queue: str
    token: int
    at: datetime


class AlertEvent(msgspec.Struct):
    """An alert over a watched schedule that was raised, or cleared, at `at`."""

    id: int
    kind: str
    state: Literal["raised", "cleared"]
    task_id: UUID
    type: str
    queue: str
    since: datetime
    at: datetime


class Message(msgspec.Struct):
    """What one node sends at a time. `left_out`: how many changes more there were."""

    events: list[Event]
    left_out: int = 0
    alerts: list[AlertEvent] = []


encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder(Message)


class Broadcaster(Actor[NoReturn]):
    """Asleep while nobody looks on."""

    name = "broadcaster"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("broadcaster", 1))
        self._context = context
        self._postgres = Patience("reading what events are about", log)
        self._redis = Patience("sending events", log)
        self._left_out = 0

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_on)
            await self.stopping.wait()
            tasks.cancel_scope.cancel()

    async def _send_on(self) -> None:
        feed = self._context.feed
        while True:
            await feed.some()
            await anyio.sleep(_EVERY_S)
            told, left_out = feed.take()
            self._left_out += left_out
            if feed.wanted:
                await self._send(told)
            else:
                self._left_out = 0

    async def _send(self, told: list[Told]) -> None:
        context = self._context
        now = from_us(context.clock.now_us())
        try:
            facts = await events.facts(context.api_db, {one.id for one in told})
        except StoreUnavailableError as error:
            self._left_out += len(told)
            await anyio.sleep(self._postgres.failed(error))
            return
        self._postgres.worked()
        made = join(told, facts, now)
        try:
            await context.streams.signals.tell_events(encoder.encode(Message(made, self._left_out)))
        except TROUBLE as error:
            self._left_out += len(made)
            await anyio.sleep(self._redis.failed(error))
        else:
            self._redis.worked()
            self._left_out = 0


def join(told: Sequence[Told], facts: dict[UUID, Facts], now: datetime) -> list[Event]:
    """Events of what was told; of tasks that are gone there are none."""
    return [
        Event(
            one.id, _change(one, fact), fact.status, fact.type, fact.queue,
            fact.version if one.token is None else one.token, now,
        )
        for one in told
        if (fact := facts.get(one.id)) is not None
    ]  # fmt: skip


def _change(told: Told, fact: Facts) -> Change:
    """Whether there will be another attempt shows in the row that the failed one has left."""
    if told.change == "failed" and fact.retry_count and fact.status in ("pending", "running"):
        return "retrying"
    return told.change
