"""Hears on this node's wake channel of near tasks that other nodes accepted."""

import asyncio
import logging
from typing import Any, NoReturn

import msgspec

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.messages import Schedule
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import keys
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.listener")

_SILENCE_S = 10.0
_ANSWER_S = 5.0


class Listener(Actor[NoReturn]):
    """Subscribed as long as it lives; a dead connection is noticed within 15 s of silence."""

    name = "listener"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("listener", 1))
        self._context = context
        self._patience = Patience("listening on the wake channel", log)

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
            subscription = self._context.streams.subscription()
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await subscription.subscribe(keys.wake(self._context.node_id))
                self._patience.worked()
                while True:
                    await self._next(subscription)
            except TROUBLE as error:
                await asyncio.sleep(self._patience.failed(error))
            finally:
                await subscription.aclose()

    async def _next(self, subscription: Any) -> None:
        message = await self._message(subscription, _SILENCE_S)
        if message is None:  # silence: is there still somebody at the other end?
            await subscription.ping()
            message = await self._message(subscription, _ANSWER_S)
            if message is None:
                raise TimeoutError("the wake channel's connection is dead")
        if message["type"] != "message":
            return
        try:
            rows = wakes.decode(message["data"])
        except msgspec.DecodeError as error:
            log.warning("an unreadable wake message: %s", error)
            return
        self._context.boxes.ticker.offer(Schedule(rows))

    @staticmethod
    async def _message(subscription: Any, timeout_s: float) -> Any:
        async with asyncio.timeout(timeout_s + _ANSWER_S):
            return await subscription.get_message(ignore_subscribe_messages=True, timeout=timeout_s)
