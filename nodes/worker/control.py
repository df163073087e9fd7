"""Listens for "stop this attempt" on the worker's control channel.

A message that is lost costs only wasted work: the report of a cancelled attempt is stale anyway.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from duly.actors.patience import Patience
from duly.storage.channel import NextMessage
from duly.storage.conveyor import Conveyor
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.worker")

LISTEN_S = 10.0
"""After so much silence the connection is tried out."""


class _Cancel(msgspec.Struct):
    cancel: str
    token: int


class Control:
    """Turns messages into calls of `cancel(task id, token)`."""

    def __init__(self, conveyor: Conveyor, cancel: Callable[[str, int], None]) -> None:
        self._conveyor = conveyor
        self._cancel = cancel
        # Lax: a token in text form is as good as a number.
        self._decoder = msgspec.json.Decoder(_Cancel, strict=False)

    async def run(self) -> None:
        """Listen until cancelled, subscribing again whenever the connection breaks."""
        patience = Patience("listening for cancellations", log)
        while True:
            try:
                async with self._conveyor.listen() as next_message:
                    patience.worked()
                    await self._listen(next_message)
            except TROUBLE as error:
                await asyncio.sleep(patience.failed(error))

    async def _listen(self, next_message: NextMessage) -> None:
        while True:
            message = await next_message(LISTEN_S)
            if message is not None:
                self._handle(message)

    def _handle(self, message: bytes) -> None:
        try:
            wish = self._decoder.decode(message)
        except msgspec.DecodeError as error:
            log.warning("a control message cannot be read: %s", error)
            return
        self._cancel(wish.cancel, wish.token)
