"""Keeps the reports that were refused as stale: gathered in memory, written to the ledger once a second.

So they cost the recorder nothing. What is bounded: the same report again adds to a count; of one task
some are kept in a second and 100 in a day, the others counted; of all tasks `_BURST` at once and
`_PER_S` for long. A node that is killed loses what it gathered in its last second.
"""

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import anyio
import asyncpg
import msgspec

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.storage import ledger
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.ledger import MORE, Stale
from duly.wheel.durations import from_us

log = logging.getLogger("duly.recorder")

_EVERY_S = 1.0
_BATCH = 500
_BURST = 10_000
_PER_S = 50.0
_OF_ONE_TASK = 20
_ERROR_CHARS = 4_000
_ERROR_START_CHARS = 1_000

_Key = tuple[UUID, int, str, str]


class Refusals:
    """Belongs to the recorder, which adds to it while `write_on` runs beside."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._patience = Patience("keeping refused reports", log)
        self._waiting: dict[_Key, Stale] = {}
        self._of_task: Counter[UUID] = Counter()
        self._room = float(_BURST)
        self._room_at = context.clock.monotonic()
        self._writing = anyio.Lock()
        self._some = anyio.Event()

    def add(self, ended: Sequence[Ended], recorded: Collection[tuple[UUID, int]]) -> None:
        """Take in those of `ended` that were not recorded, and what repeats one that was."""
        now = self._context.clock.monotonic()
        self._room = min(float(_BURST), self._room + (now - self._room_at) * _PER_S)
        self._room_at = now
        seen: set[tuple[UUID, int]] = set()
        for one in ended:
            token = (one.id, one.token)
            if token not in recorded or token in seen:
                self._add(_stale(one))
            seen.add(token)
        if self._waiting:
            self._some.set()

    def _add(self, stale: Stale) -> None:
        if self._of_task[stale.id] >= _OF_ONE_TASK and _key(stale) not in self._waiting:
            stale = Stale(stale.id, 0, MORE, "", None, None, None)
        key = _key(stale)
        known = self._waiting.get(key)
        if known is not None:
            self._waiting[key] = known._replace(times=known.times + 1)
        elif self._room >= 1:
            self._room -= 1
            self._of_task[stale.id] += 1
            self._waiting[key] = stale
        else:
            self._context.vitals.unkept_reports += 1

    async def write_on(self) -> None:
        """Write now and then while there is anything, until cancelled."""
        while True:
            await self._some.wait()
            await anyio.sleep(_EVERY_S)
            self._some = anyio.Event()
            await self.write()
            if self._waiting:
                self._some.set()

    async def write(self) -> None:
        """Write what there is; what PostgreSQL does not take now stays for the next time."""
        async with self._writing:
            while self._waiting:
                some = [self._waiting[key] for key in list(self._waiting)[:_BATCH]]
                for one in some:
                    del self._waiting[_key(one)]
                try:
                    await self._keep(some, from_us(self._context.clock.now_us()))
                except StoreUnavailableError as error:
                    self._patience.failed(error)
                    for one in some:
                        self._put_back(one)
                    return
                self._patience.worked()
            self._of_task.clear()

    def _put_back(self, stale: Stale) -> None:
        """It may have come again meanwhile."""
        again = self._waiting.get(_key(stale))
        times = stale.times + (0 if again is None else again.times)
        self._waiting[_key(stale)] = stale._replace(times=times)

    async def _keep(self, stale: Sequence[Stale], now: datetime) -> None:
        try:
            await ledger.reject(self._context.db, stale, now)
        except (asyncpg.DataError, asyncpg.ProgramLimitExceededError):
            if len(stale) == 1:  # its error cannot be stored
                await ledger.reject(self._context.db, [stale[0]._replace(error=None)], now)
                return
            half = len(stale) // 2
            await self._keep(stale[:half], now)
            await self._keep(stale[half:], now)


def _key(stale: Stale) -> _Key:
    return stale.id, stale.token, stale.outcome, stale.worker


def _stale(ended: Ended) -> Stale:
    error = ended.error
    if error is not None and len(error) > _ERROR_CHARS:
        said = {"type": "error_too_large", "message": f"it begins: {error[:_ERROR_START_CHARS]}"}
        error = msgspec.json.encode(said).decode()
    return Stale(
        ended.id, ended.token, ended.outcome, ended.worker or "", ended.started_at,
        ended.finished_at, error,
    )  # fmt: skip
