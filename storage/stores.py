"""Several databases as one: each of them holds some of the slots, and says so itself.

The first start of a cluster divides the slots over the stores; a store that comes new to one that works gets
none until some are moved there (`moving`). From then on each store knows its number and its
slots, and what does not fit together is refused.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg

from duly.storage.database import Database
from duly.storage.errors import MigrationError, RefusedError, StoreUnavailableError
from duly.storage.layout import Layout, ranges
from duly.storage.migrate import migrate
from duly.storage.slots import SLOTS
from duly.storage.writer import Writer

_TIMEOUT_S = 10.0
_LOCK_S = 2.0  # for whoever writes tasks just now
_ARRANGING = 0x64756C7A
MOVE_LOCK = 0x64756C6D
"""The advisory lock of a move of slots: a session that is at work has it in both stores."""


class LayoutError(MigrationError):
    """The stores do not fit together, or not with the settings."""


class Begun(NamedTuple):
    """A move of slots away from a store that has not ended."""

    slots: frozenset[int]
    to: int
    state: str
    """`copying`, `fenced`, `handing` or `moved`; see `moving`."""
    at_work: bool
    """Whether somebody is at it."""


class Facts(NamedTuple):
    """What a store says of itself. `fresh`: nobody has used it yet."""

    number: int | None
    slots: frozenset[int]
    fresh: bool
    moving: frozenset[int]
    """Slots that it has no more, and no other has yet, unless it says so itself."""
    begun: Begun | None
    version: str
    """Of PostgreSQL."""
    schema: str
    """The last migration."""
    tasks: int
    """About so many; and of the finished ones."""
    finished: int
    limits: bool
    """Whether a queue has `max_in_flight`."""


def name(url: str, number: int) -> str:
    """What to call a store: its number, and where it is; no user, no password."""
    parts = urlsplit(url)
    return f"store {number} ({parts.netloc.rpartition('@')[2]}{parts.path})"


async def bring_up(urls: Sequence[str]) -> Layout:
    """Bring the schema of each store up to date, and learn what each holds; see `arrange`.

    One of several that cannot be reached is left out. Raises `RefusedError` and `MigrationError`, too.
    """
    for url in urls:
        try:
            await migrate(url)
        except RefusedError:
            raise
        except StoreUnavailableError:
            if len(urls) == 1:
                raise
    return await arrange(urls)


async def held(db: Database) -> frozenset[int]:
    """The slots that a store holds now."""
    return frozenset(row["slot"] for row in await db.fetch("held_slots"))


async def arrange(urls: Sequence[str]) -> Layout:
    """Learn what each store holds; divide the slots if nobody has done so yet.

    A store that cannot be reached is taken to hold what no other does. Raises `LayoutError` for stores that do
    not fit together, `StoreUnavailableError` if none answers, or one that has to be divided.
    """
    if len(urls) == 1:
        return _alone(urls[0], await facts(urls[0]))
    found: list[Facts | None] = []
    failure: StoreUnavailableError | None = None
    for url in urls:
        try:
            found.append(await facts(url))
        except StoreUnavailableError as error:
            found.append(None)
            failure = error
    if failure is not None and all(one is None or one.number is None for one in found):
        raise failure
    if any(one is not None and one.number is None and one.limits for one in found):
        raise LayoutError(
            "a queue has max_in_flight, which several stores cannot keep together: take it off first"
        )
    if failure is None and any(one is not None and one.number is None for one in found):
        known = [one for one in found if one is not None]
        await _divide(urls, known)
        found = [await facts(url) for url in urls]
    return fitting(urls, found)


def _alone(url: str, facts: Facts) -> Layout:
    if len(facts.slots) < SLOTS:
        raise LayoutError(
            f"{name(url, facts.number or 0)} is one of several stores: it holds the slots "
            f"{ranges(facts.slots)}. Name all of them in database_urls"
        )
    layout = Layout([name(url, 0)])
    layout.learn(0, facts.slots)
    return layout


def fitting(urls: Sequence[str], found: Sequence[Facts | None]) -> Layout:
    """The layout that the stores tell of; None: one that does not answer. Raises `LayoutError`."""
    names = [name(url, at) for at, url in enumerate(urls)]
    layout = Layout(names)
    moving: set[int] = set()
    for at, facts in enumerate(found):
        if facts is None:
            continue
        if facts.number != at:
            what = "no store of this cluster" if facts.number is None else f"store {facts.number}"
            raise LayoutError(f"{names[at]} is {what}: name the stores in their order")
        layout.learn(at, facts.slots)
        moving |= facts.moving
        for other in range(at):
            if both := layout.held(at) & layout.held(other):
                raise LayoutError(
                    f"{names[at]} holds the slots {ranges(facts.slots)}, and {names[other]} "
                    f"{ranges(layout.held(other))}: {ranges(both)} twice"
                )
    if lost := set(layout.unknown) - moving:
        if None not in found:
            said = "; ".join(f"{n}: {ranges(layout.held(at))}" for at, n in enumerate(names))
            raise LayoutError(f"the slots {ranges(lost)} are in no store ({said}): name all stores")
        if found.count(None) == 1:
            layout.learn(found.index(None), lost)
    return layout


async def _divide(urls: Sequence[str], found: Sequence[Facts]) -> None:
    """Number the stores that have no number, and give each its share of what no other holds.

    The first store last: once it has its number, all others have their slots.
    """
    kept: set[int] = set()
    new: list[int] = []
    for at, facts in enumerate(found):
        if facts.number is None and facts.fresh:
            new.append(at)
            continue
        kept |= facts.slots
        if facts.number is None and at:
            raise LayoutError(
                f"{name(urls[at], at)} has been used by itself: only the first store may "
                "have tasks before it becomes one of several"
            )
    left = sorted(set(range(SLOTS)) - kept)
    if left and found[0].number is not None:
        return  # they are missing, not free
    shares = {}
    for place, at in enumerate(new):
        count = -(-len(left) // (len(new) - place))
        shares[at], left = left[:count], left[count:]
    for at in reversed(range(len(found))):
        if found[at].number is None:
            await _settle(urls[at], at, shares.get(at, sorted(found[at].slots)))


async def _settle(url: str, number: int, slots: list[int]) -> None:
    connection = await connect(url)
    try:
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", _ARRANGING)
            if await connection.fetchval("select exists (select from this_store)"):
                return  # another node was quicker
            await connection.execute(f"set local lock_timeout = '{_LOCK_S}s'")
            await connection.execute("insert into this_store (number) values ($1)", number)
            # So that numbers which stores give by themselves differ between them.
            for sequence in ("alert_ids", "audit_ids"):
                last = await connection.fetchval(f"select last_value from {sequence}")
                await connection.execute(f"alter sequence {sequence} increment by 64")
                await connection.execute(
                    "select setval($1::regclass, $2)", sequence, (last // 64 + 1) * 64 + number
                )
            await connection.execute(
                "select duly_hold_slots($1::smallint[], array_fill(-1::bigint, array[cardinality($1)]))",
                slots,
            )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailableError(f"{name(url, number)}: {error}") from error
    finally:
        await connection.close(timeout=5)


async def facts(url: str) -> Facts:
    """Ask a store. Raises `StoreUnavailableError`."""
    connection = await connect(url)
    try:
        async with connection.transaction():
            row = await connection.fetchrow(
                Database.sql("store_facts"), MOVE_LOCK, timeout=_TIMEOUT_S
            )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailableError(f"PostgreSQL: {error}") from error
    finally:
        await connection.close(timeout=5)
    begun = None
    if row["begun"]:
        at = row["moving_to"], row["move_state"], row["mover"]
        begun = Begun(frozenset(row["begun"]), *at)
    return Facts(
        row["number"], frozenset(row["slots"]), row["fresh"], frozenset(row["moving"]), begun,
        row["version"], row["schema"], row["tasks"], row["finished"], row["limits"],
    )  # fmt: skip


async def connect(url: str, *, session: bool = False) -> Any:
    """A connection to a store; with `session`, one that keeps its session. Raises `StoreUnavailableError`."""
    writer = Writer(url)
    make = writer.connect_session if session else writer.connect
    return await make(_TIMEOUT_S, {"application_name": "duly stores"})
