"""Moves slots with all their tasks from one store to another, while nodes work on both.

    watch     from now on the old store notes what changes in these slots
    copy      every task with its runs and what else is of it, some hundreds at a time; then what has changed since
    fence     the old store lets nobody work on these slots any more, and has no more changes of them
    hand over what changed last is copied, and the new store holds the slots: its nodes take them
    clear     once every node knows, the old rows are deleted

It may be broken off anywhere: run again, it goes on. Until the new store holds the slots, the old one has all that
is true; what has been copied is not looked at there.
"""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from duly.storage import stores
from duly.storage.errors import StoreError
from duly.storage.layout import ranges

log = logging.getLogger("duly.stores")

_PAGE = 500
_FEW = 20  # changes that are left for the time within the fence, about
_ROUNDS = 50
_LOCK_S = 1.0
_LOCK_TRIES = 30
_TABLES = (
    ("tasks", "id"),
    ("finished_tasks", "id"),
    ("runs", "task_id"),
    ("rejected_reports", "task_id"),
)


class MoveError(StoreError):
    """The slots cannot be moved, or not now; nothing has been."""


class Moved(NamedTuple):
    """What a move was about."""

    tasks: int
    fenced_s: float
    """For how long nobody worked on the slots, before the nodes of the new store could take them."""


class Move:
    """Of some slots between two stores, over a connection to each; see `stores.connect`."""

    def __init__(
        self,
        source: Any,
        target: Any,
        slots: Sequence[int],
        to: int,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`tell` has the nodes look at once what each store holds; without it they do so within a second."""
        self._tell = tell
        self._source = source
        self._target = target
        self._slots = sorted(slots)
        self._to = to
        self._columns: dict[str, list[str]] = {}

    async def run(self, settle_s: float) -> Moved:
        """Move them; `settle_s`: by then every node knows, and what is left in the old store is deleted.

        Raises `MoveError`; after a loss of a connection run it again.
        """
        await self._source.execute("set duly.moving = 'off'")
        await self._target.execute("set duly.moving = 'on'")
        states = await self._states()
        copied, fenced_s = 0, 0.0
        if states <= {None, "copying"}:
            await self._check()
            await self._watch()
            copied = await self._copy()
        if states != {"moved"}:
            fenced_s = await self._hand_over()
        await asyncio.sleep(settle_s)
        await self._clear()
        return Moved(copied, fenced_s)

    async def _states(self) -> set[str | None]:
        rows = await self._source.fetch(
            'select slot, "to", state from slot_moves where slot = any($1::smallint[])', self._slots
        )
        held = await _held(self._source)
        there = await _held(self._target)
        known = {row["slot"]: row for row in rows}
        for slot in self._slots:
            row = known.get(slot)
            if slot not in held | there and row is None:
                raise MoveError(f"slot {slot} is in neither of the two stores")
            if row is not None and row["to"] != self._to and row["state"] != "moved":
                raise MoveError(
                    f"slot {slot} is on its way to store {row['to']}: finish that first"
                )
            if slot in there and (row is None or row["state"] == "copying"):
                raise MoveError(f"slot {slot} is in the other store already")
        found = {
            None if slot not in known or (slot in held and known[slot]["state"] == "moved")
            else known[slot]["state"]
            for slot in self._slots
        }  # fmt: skip
        if len(found) > 1 and not found <= {None, "copying"}:
            raise MoveError("these slots are not all as far: move each part as it was begun")
        return found

    async def _check(self) -> None:
        """Tasks with one concurrency key must stay together."""
        apart = await self._source.fetchval(
            "select count(*) from tasks where concurrency_key is not null and"
            " (slot = any($1::smallint[])) <> (duly_slot_of_key(concurrency_key) = any($1::smallint[]))",
            self._slots,
        )
        if apart:
            raise MoveError(
                f"{apart} unfinished tasks have a concurrency key and were stored before there were several "
                "stores: their keys would be in two stores. Wait for their end, or take the keys off"
            )

    # Copying

    async def _watch(self) -> None:
        await self._locking(
            "select duly_watch_slots($1::smallint[], $2::smallint)", self._slots, self._to
        )
        await self._source.execute("truncate slot_move_changes")

    async def _copy(self) -> int:
        copied, after = 0, UUID(int=0)
        while True:
            rows = await self._source.fetch(
                "(select id from tasks where slot = any($1::smallint[]) and id > $2 order by id limit $3)"
                " union (select id from finished_tasks where slot = any($1::smallint[]) and id > $2"
                " order by id limit $3) order by id limit $3",
                self._slots, after, _PAGE,
            )  # fmt: skip
            if not rows:
                break
            await self._sync([row["id"] for row in rows])
            copied, after = copied + len(rows), rows[-1]["id"]
        key = ""
        while True:
            rows = await self._source.fetch(
                "select key from idempotency_keys where key > $2 and duly_slot_of_key(key) = any($1::smallint[])"
                " order by key limit $3",
                self._slots, key, _PAGE,
            )  # fmt: skip
            if not rows:
                break
            await self._sync_keys([row["key"] for row in rows])
            key = rows[-1]["key"]
        for _ in range(_ROUNDS):
            if await self._catch_up() < _FEW:
                break
        return copied

    async def _catch_up(self) -> int:
        """Copy some of what has changed; answers how many changes these were."""
        rows = await self._source.fetch(
            "select place, task_id, key from slot_move_changes order by place limit $1", _PAGE
        )
        await self._sync(list({row["task_id"] for row in rows} - {None}))
        await self._sync_keys(list({row["key"] for row in rows} - {None}))
        # Not before: what is broken off here is copied again.
        await self._source.execute(
            "delete from slot_move_changes where place = any($1::bigint[])",
            [row["place"] for row in rows],
        )
        return len(rows)

    async def _sync(self, ids: Sequence[UUID]) -> None:
        """What the new store has of these tasks is what the old one has."""
        if ids:
            await self._replace([(table, column, ids, "uuid") for table, column in _TABLES])

    async def _sync_keys(self, keys: Sequence[str]) -> None:
        if keys:
            await self._replace([("idempotency_keys", "key", keys, "text")])

    async def _replace(self, parts: Sequence[tuple[str, str, Sequence[Any], str]]) -> None:
        async with (
            self._source.transaction(isolation="repeatable_read", readonly=True),
            self._target.transaction(),
        ):
            for table, column, names, kind in parts:
                columns = await self._columns_of(table)
                listed = ", ".join(f'"{one}"' for one in columns)
                rows = io.BytesIO()
                await self._source.copy_from_query(
                    f"select {listed} from {table} where {column} = any($1::{kind}[])",
                    list(names), output=rows, format="binary",
                )  # fmt: skip
                await self._target.execute(
                    f"delete from {table} where {column} = any($1::{kind}[])", list(names)
                )
                rows.seek(0)
                await self._target.copy_to_table(
                    table, source=rows, columns=columns, format="binary"
                )

    async def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            rows = await self._target.fetch(
                "select attname from pg_attribute where attrelid = $1::text::regclass and attnum > 0"
                " and not attisdropped and attgenerated = '' order by attnum",
                table,
            )
            self._columns[table] = [row["attname"] for row in rows]
        return self._columns[table]

    # Handing over

    async def _hand_over(self) -> float:
        """Answers for how many seconds the slots were in neither store."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if not await self._are_there():
            if (await _held(self._source)).intersection(self._slots):
                await self._locking("select duly_fence_slots($1::smallint[])", self._slots)
            began = clock()
            try:
                await self._announce()
                await self._pass_on()
            except BaseException:
                if not await self._are_there():
                    await self._take_back()
                    raise
        fenced_s = clock() - began
        await self._announce()
        await self._source.execute(
            "update slot_moves set state = 'moved' where slot = any($1::smallint[])", self._slots
        )
        return fenced_s

    async def _announce(self) -> None:
        if self._tell is not None:
            await self._tell()

    async def _pass_on(self) -> None:
        """What changed last; then the other store holds the slots."""
        while await self._catch_up():
            pass
        epochs = await self._epochs()
        held = sorted(await _held(self._target) | epochs.keys())
        await self._locking(
            "select duly_take_slots($1::smallint[], $2::bigint[])",
            held, [epochs.get(slot, 0) for slot in held], connection=self._target,
        )  # fmt: skip

    async def _are_there(self) -> bool:
        return (await _held(self._target)).issuperset(self._slots)

    async def _epochs(self) -> dict[int, int]:
        rows = await self._source.fetch(
            "select slot, epoch from slot_moves where slot = any($1::smallint[])", self._slots
        )
        return {row["slot"]: row["epoch"] for row in rows}

    async def _take_back(self) -> None:
        """The fence is over, and nothing has moved."""
        held, epochs = await _held(self._source), await self._epochs()
        every = sorted(held | epochs.keys())
        await self._source.execute(
            "select duly_hold_slots($1::smallint[], $2::bigint[])",
            every,
            [epochs.get(s, 0) for s in every],
        )
        await self._source.execute(
            "delete from slot_moves where slot = any($1::smallint[])", self._slots
        )
        log.warning("slots %s stay where they were", ranges(self._slots))

    async def _clear(self) -> None:
        """Delete what is left in the old store. Its keys' trigger stays: it refuses those that have moved."""
        await self._source.execute("set duly.moving = 'on'")
        while True:
            rows = await self._source.fetch(
                "(select id from tasks where slot = any($1::smallint[]) limit $2)"
                " union (select id from finished_tasks where slot = any($1::smallint[]) limit $2)",
                self._slots, _PAGE,
            )  # fmt: skip
            if not rows:
                break
            ids = [row["id"] for row in rows]
            async with self._source.transaction():
                for table, column in reversed(_TABLES):
                    await self._source.execute(
                        f"delete from {table} where {column} = any($1::uuid[])", ids
                    )
        await self._source.execute(
            "delete from idempotency_keys where duly_slot_of_key(key) = any($1::smallint[])",
            self._slots,
        )
        await self._locking("select duly_unwatch_slots()")

    async def _locking(self, statement: str, *args: Any, connection: Any = None) -> None:
        """Run what locks a table against writers, who wait for it meanwhile: a second at most, then anew."""
        where = self._source if connection is None else connection
        for left in reversed(range(_LOCK_TRIES)):
            try:
                async with where.transaction():
                    await where.execute(f"set local lock_timeout = '{_LOCK_S}s'")
                    await where.execute(statement, *args)
                return
            except asyncpg.LockNotAvailableError:
                if not left:
                    raise MoveError("a table is locked for too long: try again later") from None
                await asyncio.sleep(_LOCK_S)


async def _held(connection: Any) -> set[int]:
    return {row["slot"] for row in await connection.fetch("select slot from slots")}


async def move(
    source_url: str,
    target_url: str,
    slots: Sequence[int],
    to: int,
    settle_s: float,
    tell: Callable[[], Awaitable[None]] | None = None,
) -> Moved:
    """Move slots to the store with the number `to`; see `Move`."""
    source = await stores.connect(source_url)
    try:
        target = await stores.connect(target_url)
        try:
            return await Move(source, target, slots, to, tell).run(settle_s)
        finally:
            await target.close(timeout=5)
    finally:
        await source.close(timeout=5)
