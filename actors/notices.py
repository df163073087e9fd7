"""Hears of near tasks that users have submitted within their own transactions, once these have committed.

What it does not hear, while its session is lost or goes through a pooler that does not support it, the sweep
finds.
"""

import logging
from typing import NoReturn

import msgspec

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.messages import Schedule
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import notices
from duly.storage.errors import StoreError
from duly.storage.notices import Limits
from duly.storage.writer import Writer

log = logging.getLogger("duly.notices")

_CHECK_S = 15.0


class Notices(Actor[NoReturn]):
    """Keeps a session open; a dead one is noticed within 20 s."""

    name = "notices"

    def __init__(self, context: Context, database_url: str, limits: Limits) -> None:
        """`limits`: what submissions in SQL are held to, from now on."""
        super().__init__(Mailbox("notices", 1))
        self._context = context
        self._writer = Writer(database_url)
        self._limits = limits
        self._patience = Patience("listening to PostgreSQL", log)

    async def run(self) -> None:
        while not self.stopping.is_set():
            try:
                await self._listen()
            except StoreError as error:
                await self.pause(self._patience.failed(error))

    async def _listen(self) -> None:
        node = self._context.node_id
        async with notices.opened(self._writer, node, self._limits, self._hear) as session:
            self._patience.worked()
            while not await self.pause(_CHECK_S):
                await session.check()

    def _hear(self, message: str) -> None:
        try:
            said = wakes.decode(message.encode())
        except msgspec.DecodeError as error:
            log.warning("an unreadable notice: %s", error)
            return
        if isinstance(said, list):
            self._context.boxes.ticker.offer(Schedule(said))
