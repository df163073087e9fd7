"""What can go wrong with a store.

StoreError
├── StoreUnavailableError   no connection, or no answer within its limit; `in_doubt` if the
│   │                       statement may have taken effect
│   └── RefusedError        the server answers, but does not let us in
├── MigrationError          the schema is not what this version needs
└── NameInUseError          another unfinished task has the name
"""

import asyncio


class StoreError(Exception):
    """Something is wrong with PostgreSQL or Redis."""


class Doubt:
    """A statement of the session `pid` whose end nobody has heard.

    `over` is set once it has surely ended. `at_work`: whether its session was there still when last
    looked for; None = nobody has looked yet.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.over = asyncio.Event()
        self.at_work: bool | None = None


class StoreUnavailableError(StoreError):
    """The store did not answer in time, or not at all. Try again later.

    `in_doubt`: the statement had been sent, so it may have taken effect: wait until it has `settled`,
    then read back by key.
    """

    def __init__(self, message: str, *, in_doubt: bool = False, doubt: Doubt | None = None) -> None:
        super().__init__(message)
        self.elsewhere = False
        """A task's slot is in another store, or on its way there: nothing was done."""
        self.in_doubt = in_doubt or doubt is not None
        self._doubt = doubt

    async def settled(self, within_s: float = 5.0) -> None:
        """Return once the statement surely is not under way any more: then reading back tells.

        Raises StoreUnavailableError, in doubt like this one, if that is not known `within_s` seconds.
        """
        if self._doubt is None:
            return
        try:
            async with asyncio.timeout(within_s):
                await self._doubt.over.wait()
        except TimeoutError:
            raise StoreUnavailableError(str(self), doubt=self._doubt) from self


class RefusedError(StoreUnavailableError):
    """The server refuses the password, the user or the database: trying again is no use by itself."""


class MigrationError(StoreError):
    """The schema cannot be brought to this version."""


class NameInUseError(StoreError):
    """Another unfinished task has the name."""

    def __init__(self) -> None:
        super().__init__("another unfinished task has its name")
