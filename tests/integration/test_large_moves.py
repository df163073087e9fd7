"""Moves of slots with much in them: a few hundred tasks are in memory at once, and less than all runs of a task."""

import tracemalloc
from uuid import UUID

import asyncpg
from moves_rig import left, move

from duly.storage import stores
from duly.storage.layout import slot_of

_SLOTS = range(128)
_LARGE = 100  # tasks with a payload of 250 KB
_RUNS = 60_000  # of one task, 250 bytes each
_MB = 1024 * 1024


async def test_a_move_has_little_in_memory_whatever_it_moves(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    task = next(one for one in map(_id, range(999)) if slot_of(one) in _SLOTS)
    connection = await asyncpg.connect(two_stores[0])
    try:
        await connection.execute(
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
            " select id, 't', 'q', to_jsonb(repeat('payload', 36000)), now(), now(), now(), now()"
            " from (select gen_random_uuid() as id from generate_series(1, 400)) i"
            " where get_byte(sha256(uuid_send(id)), 0) < 128 limit $1", _LARGE,
        )  # fmt: skip
        await connection.execute(
            "insert into runs (task_id, token, occurrence, attempt, outcome, recorded_at, result)"
            " select $1, n, now(), 1, 'completed', now(), to_jsonb(repeat('result', 40))"
            " from generate_series(1, $2::int) n",
            task, _RUNS,
        )  # fmt: skip
        await connection.execute(
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
            " values ($1, 't', 'q', '1', now(), now(), now(), now())", task,
        )  # fmt: skip
    finally:
        await connection.close()
    tracemalloc.start()
    try:
        moved = await move(two_stores, _SLOTS, settle_s=0.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert moved.tasks == _LARGE + 1
    assert peak < 12 * _MB, f"{peak / _MB:.1f} MB"
    assert await left(two_stores[0], _SLOTS) == 0
    assert await left(two_stores[1], _SLOTS) == _LARGE + 1 + _RUNS


def _id(number: int) -> UUID:
    return UUID(int=number)
