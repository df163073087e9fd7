"""Hears of near tasks that other nodes accepted, and of concurrency keys that they freed."""

import asyncio
import logging
from typing import NoReturn

import msgspec

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.messages import Freed, Schedule
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.listener")

_SILENCE_S = 10.0


class Listener(Actor[NoReturn]):
    """Subscribed as long as it lives; a dead connection is noticed within 15 s of silence."""

    name = "listener"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("listener", 1))
        self._context = context
        self._patience = Patience("listening on the wake channel", log, context.vitals.redis)

    async def run(self) -> None:
        hearing = asyncio.create_task(self._hear())
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({hearing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                hearing.result()
        finally:
            for task in (hearing, stopping):
                task.cancel()
            await asyncio.gather(hearing, stopping, return_exceptions=True)

    async def _hear(self) -> None:
        while True:
            try:
                async with self._context.streams.signals.wakes() as next_message:
                    self._patience.worked()
                    while True:
                        self._pass_on(await next_message(_SILENCE_S))
            except TROUBLE as error:
                await asyncio.sleep(self._patience.failed(error))

    def _pass_on(self, message: bytes | None) -> None:
        if message is None:
            return
        try:
            said = wakes.decode(message)
        except msgspec.DecodeError as error:
            log.warning("an unreadable wake message: %s", error)
            return
        if isinstance(said, list):
            self._context.boxes.ticker.offer(Schedule(said))
        elif said.node != self._context.node_id:  # its own it knows already
            self._context.boxes.dispatcher.offer(
                Freed(frozenset(said.freed), frozenset(said.queues))
            )
