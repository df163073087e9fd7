"""Looks at whatever is due, and brings what of it neither the wheel nor the dispatcher knows.

A look reaches from the beginning to `_AHEAD_S` beyond the next one. Where that takes long, since a vacuum has left much behind,
or can remove nothing, some slots at a time are looked at from the beginning (see `turns`), and of the others what has
come due of late: nearly all that a lost wake or a late commit leaves behind is there.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from duly.actors import intake
from duly.actors.context import Context
from duly.actors.intake import Intake
from duly.actors.refills import Refills
from duly.actors.turns import Turns
from duly.storage import sweeps
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import BEGINNING, Cursor, DuePage, DueRow
from duly.storage.sweeps import Name, Swept
from duly.wheel.durations import from_us

_AHEAD_S = 1.0  # beyond the next sweep, so that no task falls due before it is read
_GROWS_S = 0.5  # from one sweep to the next: what has been looked at reaches beyond that
_BACK_S = 5.0  # what every sweep looks at, of a long backlog and of slots whose turn it is not
_PAGES = 10
_NAME_PAGES = 1  # as long ones, or nearly all of a large backlog would be looked at each time
_SHARE = 5  # where it takes long, since much is due: a fifth of the time at most
_LATEST_S = 2.0
_TURN_S = 0.05  # a tenth of the time until the next
_TURNS = 16  # each slot from its beginning within eight seconds, at two sweeps a second
_NAMES = 30_000  # 24 bytes each; more than a queue holds in line


class Sweeping:
    """The sweeps of one node's slots."""

    def __init__(self, context: Context, intake: Intake, refills: Refills) -> None:
        self.every_s = context.options.sweep_every_s
        """Until the next one, from the beginning of the last."""
        self._context = context
        self._intake = intake
        self._refills = refills
        self._turns = Turns(_TURN_S, _TURNS)
        self._swept: dict[int, Cursor] = {}  # how far, in slots with more than a page due
        self._looked_us = context.clock.now_us()  # when a look at all that came due of late began

    def begin_anew(self, gained: set[int], owned: Iterable[int]) -> None:
        """Of slots that were gained nothing has been looked at."""
        kept = set(owned) - gained
        self._swept = {slot: cursor for slot, cursor in self._swept.items() if slot in kept}

    async def sweep(self, owned: Sequence[int]) -> None:
        """All that is due, one page of each slot. Where there is more, the rest of it next time.

        There, what has come due of late is looked at each time all the same.
        """
        clock = self._context.clock
        began = clock.monotonic()
        now_us = clock.now_us()
        before = from_us(now_us + round((self.every_s + _AHEAD_S) * 1e6))
        lately = Cursor(from_us(min(now_us, self._looked_us) - round(_BACK_S * 1e6)), UUID(int=0))
        turn = self._turns.take(owned)
        asked = clock.monotonic()
        try:
            page = await self._look({s: self._swept.get(s, BEGINNING) for s in turn}, before)
        except StoreUnavailableError:
            self._turns.failed(turn, clock.monotonic() - asked)
            raise
        self._turns.took(turn, clock.monotonic() - asked)
        await self._bring(page)
        for slot in turn:
            self._swept.pop(slot, None)
        self._swept |= {slot: cursor for slot, cursor in page.more.items() if cursor < lately}
        cursors = {slot: max(cursor, lately) for slot, cursor in page.more.items()}
        if others := set(owned).difference(turn):
            page = await self._look(dict.fromkeys(others, lately), before)
            await self._bring(page)
            cursors |= page.more
        self._looked_us = now_us
        pages = _PAGES if self._reads_rows else _NAME_PAGES
        for _ in range(pages):
            if not cursors:
                break
            page = await self._look(cursors, before)
            await self._bring(page)
            cursors = page.more
        self._slow_down(clock.monotonic() - began)

    def _slow_down(self, took_s: float) -> None:
        """Sweep as often as such sweeps should come, but for what this one has not looked ahead."""
        latest_s = min(_LATEST_S, self.every_s + _GROWS_S)
        self.every_s = max(self._context.options.sweep_every_s, min(_SHARE * took_s, latest_s))

    @property
    def _reads_rows(self) -> bool:
        """Whether a sweep leaves out what is saturated; else it reads the names of all."""
        return bool(self._refills.queues or self._refills.keys)

    async def _look(self, cursors: dict[int, Cursor], before: datetime) -> DuePage | Swept:
        """A page of each slot. And note whether what is set of queues has changed, where that needs no statement of its own."""
        if self._reads_rows:
            return await self._intake.page(cursors, before)
        context = self._context
        asked_at = context.clock.monotonic()
        page = await sweeps.sweep(context.db, cursors, before, max(1, _NAMES // len(cursors)))
        self._intake.patience.worked()
        if context.home is None:
            context.controls.check(page.controls, asked_at)
        return page

    async def _bring(self, page: DuePage | Swept) -> None:
        """Pass on what of a page is not known."""
        if isinstance(page, DuePage):
            await self._intake.pass_on(page.rows)
            return
        boxes = self._context.boxes
        names = await self._intake.unknown(page.names, boxes.ticker)
        names = await self._intake.unknown(names, boxes.dispatcher)
        await self._bring_named([name for some in names.values() for name in some])

    async def _bring_named(self, names: Sequence[Name]) -> None:
        """Read these and pass them on, the first ones first, in pages: so many at once would hold up the others."""
        found: list[DueRow] = []
        for at in range(0, len(names), intake.PAGE):
            found += await sweeps.pending(self._context.db, names[at : at + intake.PAGE])
        found.sort(key=lambda row: row.next_run_at)
        for at in range(0, len(found), intake.PAGE):
            await self._intake.pass_on(found[at : at + intake.PAGE])
