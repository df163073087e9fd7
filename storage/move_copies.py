"""Copies tasks, and what belongs to them, from one store to another: in the other one is then what is in the first."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from duly.storage.errors import StoreUnavailableError
from duly.storage.move_session import LONG_S, MoveError, MoveSession

PAGE = 500

_MANY = 100_000  # changes; all of them, where one needs another
_TRIES = 5
_STANDS_STILL_S = 30.0
_CHUNKS = 16  # of some 64 KB, which have been read and not yet written


class _Table(NamedTuple):
    name: str
    key: str
    """The column by which its rows are asked for; see `duly_watch_table` for `watched`."""
    kind: str
    watched: str


_OF_TASKS = (
    _Table("tasks", "id", "uuid", "id"),
    _Table("finished_tasks", "id", "uuid", "id"),
    _Table("rejected_reports", "task_id", "uuid", "task"),
)
_WAITS = _Table(
    "task_waits", "parent", "uuid", ""
)  # a change of these is one of the parent's row, too
_RUNS = _Table("runs", "task_id", "uuid", "run")
_KEYS = _Table("idempotency_keys", "key", "text", "key")
WATCHED = tuple((table.name, table.watched) for table in (*_OF_TASKS, _RUNS, _KEYS))
"""The tables that have rows of a task, and how their changes are noted."""


class _Pipe:
    """From one store to the other; never more than a few chunks are in it."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_CHUNKS)
        self.passed = 0

    async def put(self, chunk: bytes | None) -> None:
        """None: that was all."""
        await self._chunks.put(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            self.passed += 1
            yield chunk


class Copies:
    """Of what is in `source`, made in `target`."""

    def __init__(self, source: MoveSession, target: MoveSession) -> None:
        self._source = source
        self._target = target
        self._columns: dict[str, list[str]] = {}

    async def all_of(self, slots: Sequence[int]) -> int:
        """Copy every task and key of these slots; answers how many tasks."""
        copied = 0
        async for ids in _pages(self._source, slots):
            await self._page([(table, ids) for table in (*_OF_TASKS, _WAITS, _RUNS)])
            copied += len(ids)
        key = ""
        while keys := await _keys_after(self._source, slots, key):
            await self._replace([(_KEYS, keys)])
            key = keys[-1]
        return copied

    async def _page(self, parts: Sequence[tuple[_Table, Sequence[Any]]]) -> None:
        """A task may have the name of one that was copied before, and has ended since: then that goes first."""
        for _ in range(_TRIES):
            try:
                await self._replace(parts)
                return
            except asyncpg.UniqueViolationError as error:
                violation = error
                while await self.changes(_MANY):
                    pass
        raise MoveError(f"{self._target.name} has what is unique already: {violation}")

    async def changes(self, most: int = PAGE) -> int:
        """Copy some of what has changed; answers how many changes these were."""
        try:
            return await self._changes(most)
        except asyncpg.UniqueViolationError as error:  # one of them needs a later one
            if most == _MANY:
                raise MoveError(
                    f"{self._target.name} has what is unique already: {error}"
                ) from error
            return await self._changes(_MANY)

    async def _changes(self, most: int) -> int:
        rows = await self._source.fetch("move_changes", most)
        if not rows:
            return 0
        runs = {tuple(row)[1:4] for row in rows if row["token"] is not None}
        ids = {row["task_id"] for row in rows if row["token"] is None} - {None}
        keys = {row["key"] for row in rows} - {None}
        parts = [(table, sorted(ids)) for table in (*_OF_TASKS, _WAITS)] if ids else []
        await self._replace([*parts, *([(_KEYS, sorted(keys))] if keys else [])], sorted(runs))
        # Not before: what is broken off here is copied again.
        await self._source.fetch("move_changes_done", [row["place"] for row in rows])
        return len(rows)

    async def _replace(
        self,
        parts: Sequence[tuple[_Table, Sequence[Any]]],
        runs: Sequence[tuple[UUID, int, Any]] = (),
    ) -> None:
        """What the target has under these names is what the source has, at one instant."""
        source, target = self._source, self._target
        async with (
            source.transaction(isolation="repeatable_read", readonly=True),
            target.transaction(),
        ):
            for table, names in parts:
                await target.fetch(f"move_delete_{table.name}", names)
                await self._pour(table, f"{table.key} = any($1::{table.kind}[])", names)
            if runs:
                columns = [list(column) for column in zip(*runs, strict=True)]
                await target.fetch("move_delete_some_runs", *columns)
                one_of = "select * from unnest($1::uuid[], $2::bigint[], $3::timestamptz[])"
                await self._pour(_RUNS, f"(task_id, token, recorded_at) in ({one_of})", *columns)

    async def _pour(self, table: _Table, where: str, *args: Any) -> None:
        """Copy rows, of which never more than a few are here."""
        columns = await self._columns_of(table.name)
        listed = ", ".join(f'"{one}"' for one in columns)
        query = f"select {listed} from {table.name} where {where}"
        source, target, pipe = self._source, self._target, _Pipe()
        await _both(
            source.answer(
                source.connection.copy_from_query(query, *args, output=pipe.put, format="binary"),
                LONG_S,
            ),
            target.answer(
                target.connection.copy_to_table(
                    table.name, source=pipe, columns=columns, format="binary"
                ),
                LONG_S,
            ),
            pipe,
        )

    async def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            rows = await self._target.fetch("move_columns", table)
            self._columns[table] = [row["attname"] for row in rows]
        return self._columns[table]


async def clear(session: MoveSession, slots: Sequence[int]) -> None:
    """Delete what a store has of slots that it does not hold. Triggers have to leave this session alone."""
    async for ids in _pages(session, slots):
        async with session.transaction():
            for table in (_RUNS, _WAITS, *_OF_TASKS):
                await session.fetch(f"move_delete_{table.name}", ids)
    key = ""
    while keys := await _keys_after(session, slots, key):
        await session.fetch("move_delete_idempotency_keys", keys)
        key = keys[-1]


async def _pages(session: MoveSession, slots: Sequence[int]) -> AsyncIterator[list[UUID]]:
    """The ids of the tasks of these slots."""
    begin = 0
    while begin < 2**128:
        rows = await session.long("move_tasks_from", slots, UUID(int=begin), PAGE)
        if not rows:
            return
        yield [row["id"] for row in rows]
        begin = rows[-1]["id"].int + 1


async def _keys_after(session: MoveSession, slots: Sequence[int], after: str) -> list[str]:
    return [row["key"] for row in await session.long("move_keys_after", slots, after, PAGE)]


async def _both(
    reading: Coroutine[Any, Any, Any], writing: Coroutine[Any, Any, Any], pipe: _Pipe
) -> None:
    """Raises `StoreUnavailableError` if nothing comes through the pipe any more."""

    async def read() -> None:
        await reading
        await pipe.put(None)

    pending: set[asyncio.Task[Any]] = {asyncio.create_task(read()), asyncio.create_task(writing)}
    try:
        while pending:
            passed = pipe.passed
            done, pending = await asyncio.wait(
                pending, timeout=_STANDS_STILL_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for one in done:
                one.result()
            if not done and pipe.passed == passed:
                raise StoreUnavailableError("a copy from one store to the other stands still")
    finally:
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
