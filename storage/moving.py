"""Moves slots with all their tasks from one store to another, while nodes work on both.

    copying   the old store notes what changes in these slots from now on; every task is copied with its runs and what
              else is of it, some hundreds at a time; then what has changed since, until little is left
    fenced    the old store lets nobody work on these slots any more; what changed last is copied
    handing   the new store is told to hold the slots: its nodes take them
    moved     once every node knows, the old rows are deleted

The old store keeps the state, so a move may be broken off anywhere, and goes on when it is run again. Until the new
store holds the slots, the old one has all that is true; what has been copied is not looked at there. A fence is
taken back by the old store alone: as long as the state is not `handing`, the other one has never been asked. If it is
not ended in time, nodes end it (`fences`), and each step that comes after it is refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

import asyncpg

from duly.storage import move_copies, move_states
from duly.storage.errors import RefusedError, StoreUnavailableError
from duly.storage.layout import ranges
from duly.storage.move_copies import WATCHED, Copies
from duly.storage.move_session import LockedError, MoveError, MoveSession
from duly.storage.move_states import held_by

log = logging.getLogger("duly.stores")

_FEW = 20  # changes that are left for the time within the fence, about
_CATCH_UP_S = 900.0  # until so few are left
_FENCE_S = 1.5  # then it is taken back, and tried again later
_FENCE_BROKEN_S = 3.0  # then a store is away
_FENCE_OVER_S = 5.0  # then nodes end it, who take whoever is at it for gone
_FENCES = 5
_FENCE_AGAIN_S = 3.0
_PATIENCE_S = 60.0
_AGAIN_S = 0.5


class Nodes(Protocol):
    """Those of the cluster."""

    async def ready(self) -> None:
        """Raises `MoveError` unless every live node works on both stores."""

    async def tell(self) -> None:
        """Have them look at once what each store holds."""


class Moved(NamedTuple):
    """What a move was about."""

    tasks: int
    fenced_s: float
    """For how long nobody worked on the slots, before the nodes of the new store could take them."""


class _OverrunError(Exception):
    """The fence has lasted too long, or was taken back by nodes; nothing has been handed over."""


async def move(
    source: MoveSession,
    target: MoveSession,
    slots: Sequence[int],
    settle_s: float,
    nodes: Nodes,
    patience_s: float = _PATIENCE_S,
) -> Moved:
    """Move slots from one store to the other, or finish what was broken off.

    `settle_s`: by then every node knows where they are, and the old rows are deleted. A store that does not answer
    is waited for `patience_s`; then `StoreUnavailableError` is raised, and the move can be run again. Raises
    `MoveError`.
    """
    mover = Move(source, target, slots, nodes)
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + patience_s
    while True:
        try:
            async with mover.telling():
                return await mover.attempt(settle_s)
        except RefusedError:
            raise
        except StoreUnavailableError as error:
            was_there, mover.was_there = mover.was_there, False
            if was_there:
                give_up_at = clock() + patience_s
            elif clock() >= give_up_at:
                raise
            log.warning("the move goes on once the store answers: %s", error)
            if not was_there:  # else at once: there may be a fence
                await asyncio.sleep(_AGAIN_S)


async def undo(
    source: MoveSession, target: MoveSession, slots: Sequence[int], nodes: Nodes
) -> bool:
    """Leave the slots where they are, as if nothing had been begun; what was copied is deleted.

    False: the other store does not answer, and keeps its copies, which nobody looks at. Raises `MoveError` if the
    other store holds them, or may hold them and does not answer.
    """
    mover = Move(source, target, slots, nodes)
    async with mover.telling(), source:
        await source.begin(target=False)
        await mover.take_back("fenced")
        try:
            async with target:
                await target.begin(target=True)
                await mover.settle_fence()
                if await mover.state() == "moved":
                    raise MoveError(f"{target.name} holds the slots: move them back instead")
                await move_copies.clear(target, mover.slots)
        except StoreUnavailableError as error:
            if await mover.state() in ("handing", "moved"):
                raise MoveError(f"the slots may be in {target.name} already: {error}") from error
            await mover.forget()
            return False
        await mover.forget()
        return True


class Move:
    """Of some slots; `source` and `target` are opened and closed here."""

    def __init__(
        self, source: MoveSession, target: MoveSession, slots: Sequence[int], nodes: Nodes
    ) -> None:
        self.slots = sorted(slots)
        self._source = source
        self._target = target
        self._nodes = nodes
        self._telling: set[asyncio.Future[None]] = set()
        self._copied = 0
        self._fenced_s = 0.0
        self.was_there = False
        """Whether both stores have answered, in the last attempt."""

    async def attempt(self, settle_s: float) -> Moved:
        """Go on from where it is."""
        async with self._source as source:
            await source.begin(target=False)
            await self.take_back("fenced")
            async with self._target as target:
                await target.begin(target=True)
                self.was_there = True
                await self.settle_fence()
                if await self.state() != "moved":
                    await self._copy()
                    await self._hand_over()
                await asyncio.sleep(settle_s)
                await source.write_all()
                await move_copies.clear(source, self.slots)
                await self.unwatch()
                await source.fetch("move_cleared", self.slots)
        return Moved(self._copied, self._fenced_s)

    async def state(self) -> str | None:
        """How far the slots are; see `move_states`."""
        return await move_states.state(self._source, self.slots, self._target.number)

    async def settle_fence(self) -> None:
        """End a fence, by whomever it is: the slots are in one of the stores afterwards."""
        if await self.state() == "handing":
            fence = await self._fence_id()
            if await self._were_taken(fence):
                await self._source.fetch("move_moved", self.slots, fence)
            else:
                await self.take_back("handing")
        else:
            await self.take_back("fenced")

    async def _were_taken(self, fence: UUID | None) -> bool:
        """From now on they cannot be, if not."""
        if fence is None:  # of the version before, of which nobody hands over now: he had the lock
            return (await held_by(self._target)).issuperset(self.slots)
        return bool(await self._target.value("fence_decide", fence))

    async def _fence_id(self) -> UUID | None:
        rows = await self._source.fetch("move_states", self.slots)
        fence: UUID | None = rows[0]["fence"]
        return fence

    async def forget(self) -> None:
        """What has been copied is not kept up to date any more."""
        await self.unwatch()
        await self._source.fetch("move_undone", self.slots)

    async def unwatch(self) -> None:
        """Changes are noted no more."""
        for table, what in WATCHED:
            await self._source.locking("move_unwatch_table", table, what)
        await self._source.fetch("move_forget_changes")

    async def _copy(self) -> None:
        source = self._source
        await self._nodes.ready()
        (apart,) = await source.long("move_apart", self.slots)
        if apart["count"]:
            raise MoveError(
                f"{apart['count']} unfinished tasks have a concurrency key or a name and were stored before there were "
                "several stores: what goes together would be in two. Wait for their end, or take the keys off"
            )
        (waits,) = await source.long("move_waits_apart", self.slots)
        if waits["count"]:
            raise MoveError(
                "tasks wait for others that would be in another store: wait for their end"
            )
        if (await held_by(self._target)).intersection(self.slots):
            raise MoveError(f"{self._target.name} holds some of these slots too")
        # What a move that was broken off has copied may be of tasks that are no more.
        await move_copies.clear(self._target, self.slots)
        await source.fetch("move_watch", self.slots, self._target.number)
        for table, what in WATCHED:
            await source.locking("move_watch_table", table, what)
        self._copies = Copies(source, self._target)
        self._copied = await self._copies.all_of(self.slots)
        await self._catch_up()

    async def _catch_up(self) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + _CATCH_UP_S
        while await self._copies.changes() >= _FEW:
            if clock() > until:
                raise MoveError(
                    "tasks change quicker than they are copied: move fewer slots at a time"
                )

    async def _hand_over(self) -> None:
        for left in reversed(range(_FENCES)):
            try:
                await self._fence()
                return
            except (_OverrunError, LockedError) as error:
                await self.settle_fence()
                if not left:
                    raise MoveError(
                        "the fence took too long; nothing has moved: try again later"
                    ) from error
            except StoreUnavailableError:
                raise  # with the next attempt the old store is asked anew
            except BaseException:
                await self.settle_fence()
                raise
            log.warning("the fence took too long, and was taken back; it is tried again")
            await asyncio.sleep(_FENCE_AGAIN_S)
            await self._catch_up()

    async def _fence(self) -> None:
        """What changed last is copied, and the other store holds the slots. Raises `_OverrunError`, `LockedError`."""
        clock = asyncio.get_running_loop().time
        fence = uuid4()
        await self._source.locking("move_fence", self.slots, fence, _FENCE_OVER_S)
        began = clock()
        self._tell_nodes()
        try:
            async with asyncio.timeout(_FENCE_BROKEN_S):
                await self._pass_on(fence, began + _FENCE_S)
        except TimeoutError:
            for store in (self._source, self._target):
                store.terminate()
            raise StoreUnavailableError("a store did not answer within the fence") from None
        self._fenced_s = clock() - began
        self._tell_nodes()

    async def _pass_on(self, fence: UUID, until: float) -> None:
        for table in ("idempotency_keys", "rejected_reports"):  # written by themselves, too
            await self._source.locking(
                "move_wait_for_writers", table, tries=1, within_s=_left(until)
            )
        while await self._copies.changes():
            _left(until)
        epochs = await self._source.fetch("move_epochs", self.slots)
        await self._target.value("move_number")  # if it is away, it has not been asked
        if not await self._source.fetch("move_hand", self.slots, fence):
            raise _OverrunError  # nodes have taken it back
        columns = [row["slot"] for row in epochs], [row["epoch"] for row in epochs]
        try:
            await self._target.locking("move_take", *columns, fence, tries=1, within_s=_left(until))
        except asyncpg.UniqueViolationError:
            raise _OverrunError from None  # the same
        await self._source.fetch("move_moved", self.slots, fence)

    async def take_back(self, state: str) -> None:
        """If they are in this state: the fence is over, and nothing has moved."""
        if await self.state() != state:
            return
        await self._source.locking("move_unfence", self.slots, state, await self._fence_id())
        self._tell_nodes()
        log.warning("slots %s stay where they were", ranges(self.slots))

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Nodes have been told by its end."""
        try:
            yield
        finally:
            await asyncio.gather(*self._telling)
            self._telling.clear()

    def _tell_nodes(self) -> None:
        """Without waiting for it: there may be a fence."""
        self._telling.add(asyncio.ensure_future(self._nodes.tell()))


def _left(until: float) -> float:
    """Seconds. Raises `_OverrunError`."""
    left_s = until - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise _OverrunError
    return left_s
