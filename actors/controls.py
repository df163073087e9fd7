"""What operators have set of the queues, as this node knows it.

The table is the truth. A change is announced over Redis. If the announcement is lost, the prefetcher's next sweep
tells that the table has changed; if there has been no sweep for a while, the table is read again. So a node knows of a
change within a second. While PostgreSQL is away, what was last read counts.
"""

import logging
from typing import NoReturn

import anyio

from duly.actors.context import Context
from duly.actors.messages import Controlled
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import queues
from duly.storage.errors import StoreUnavailableError
from duly.storage.queues import Control
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.controls")

_EVERY_S = 0.7  # and the statement: a second in all, if the announcement was lost
_INSTANT_S = 0.001  # as good as now: less may not even change the time when a wait would end
_SILENCE_S = 10.0


class ControlReader(Actor[NoReturn]):
    """Keeps `context.controls` up to date, and tells the dispatcher when something has changed."""

    name = "controls"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("controls", 1))
        self._context = context
        self._news = context.controls.news
        board = context.vitals.postgres
        self._reading = Patience("reading what is set of queues", log, board)
        self._at_home = Patience("reading what is set of queues in the first store", log)
        self._copied: list[Control] | None = None
        self._hearing = Patience("listening for changes of queues", log)

    async def started(self) -> None:
        while (wait_s := await self._read()) is not None:
            await self.pause(wait_s)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear)
            while not self.stopping.is_set():
                left_s = self._context.controls.known_at + _EVERY_S - self._now()
                if left_s > _INSTANT_S and not self._news.is_set():
                    with anyio.move_on_after(left_s):
                        await self._news.wait()
                    continue  # a sweep may have looked meanwhile
                self._news.clear()
                wait_s = await self._read()
                if wait_s is not None:
                    await self.pause(wait_s)
            tasks.cancel_scope.cancel()

    def request_stop(self) -> None:
        super().request_stop()
        self._news.set()

    async def _read(self) -> float | None:
        """Read the table; if that fails, the seconds to wait before the next try."""
        asked_at = self._now()
        try:
            found = await self._controls()
        except StoreUnavailableError as error:
            return self._reading.failed(error)
        self._reading.worked()
        if self._context.controls.update(found, asked_at):
            # Its mailbox is full? Then it is awake, and looks at the controls soon.
            self._context.boxes.dispatcher.offer(Controlled())
        return None

    def _now(self) -> float:
        return self._context.clock.monotonic()

    async def _controls(self) -> list[Control]:
        """As the first store has them; while it is away, as they were copied to this one."""
        home, db = self._context.home, self._context.db
        if home is None:
            return await queues.controls(db)
        try:
            found = await queues.controls(home)
        except StoreUnavailableError as error:
            self._at_home.failed(error)
            return await queues.controls(db)
        self._at_home.worked()
        if found != self._copied:
            await queues.copy(db, found)
            self._copied = found
        return found

    async def _hear(self) -> None:
        while True:
            try:
                async with self._context.streams.signals.control_changes() as next_message:
                    self._hearing.worked()
                    while True:
                        if await next_message(_SILENCE_S) is not None:
                            self._news.set()
            except TROUBLE as error:
                await anyio.sleep(self._hearing.failed(error))
