"""One of several stores: its tree lives as long as the node, and begins once the store is to be used."""

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

import anyio

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox, Supervisor
from duly.storage import stores
from duly.storage.errors import StoreError
from duly.storage.migrate import migrate
from duly.storage.upkeep import server_time
from duly.wheel.durations import to_us

log = logging.getLogger("duly.stores")


class StoreActor(Actor[NoReturn]):
    """Has started at once, whether the store is there or not: the other stores do not wait for it."""

    def __init__(
        self,
        context: Context,
        urls: Sequence[str],
        tree: Callable[[], Supervisor],
    ) -> None:
        super().__init__(Mailbox(f"store {context.store}", 1))
        assert context.layout is not None
        self.name = context.layout.names[context.store]
        self._context = context
        self._urls = urls
        self._tree = tree
        self._supervisor: Supervisor | None = None
        self._patience = Patience(f"reaching {self.name}", log, context.vitals.postgres)

    async def run(self) -> None:
        while not await self._is_there():
            if self.stopping.is_set():
                return
        self._supervisor = self._tree()
        if self.stopping.is_set():
            self._supervisor.request_stop()
        await self._supervisor.serve(anyio.Event())

    def request_stop(self) -> None:
        super().request_stop()
        if self._supervisor is not None:
            self._supervisor.request_stop()

    async def _is_there(self) -> bool:
        """Bring its schema up to date, and look whether it fits."""
        context = self._context
        try:
            await migrate(self._urls[context.store])
            found = await stores.arrange(self._urls)
            assert context.layout is not None
            context.layout.learn(context.store, found.held(context.store))
        except StoreError as error:
            await self.pause(self._patience.failed(error))
            return False
        self._patience.worked()
        return True


class FirstSample(Actor[NoReturn]):
    """Has started once the clock is known, by any store: without it the API could answer nothing."""

    name = "first sample"

    def __init__(self, contexts: Sequence[Context]) -> None:
        super().__init__(Mailbox(self.name, 1))
        self._contexts = contexts
        self._patience = Patience("reading PostgreSQL's clock", log)

    async def started(self) -> None:
        clock = self._contexts[0].clock
        while not clock.synced:
            for context in self._contexts:
                sent = clock.monotonic()
                try:
                    answer = await server_time(context.api_db)
                except StoreError as error:
                    await self.pause(self._patience.failed(error))
                else:
                    clock.observe(sent, clock.monotonic(), to_us(answer))
                    break
        self._patience.worked()

    async def run(self) -> None:
        await self.stopping.wait()
