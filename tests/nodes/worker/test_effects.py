"""`ctx.exactly_once`: on every kind of connection, alone and inside a transaction of the user's."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import pytest
from effects_rig import (
    CONNECTS,
    Connect,
    Effects,
    apply,
    apply_and_fail,
    attempt,
    by_asyncpg,
    found_done,
    looking,
    new_id,
)
from psycopg.rows import dict_row
from waiting import wait_for

from duly.nodes.cli import main
from duly.nodes.worker import AlreadyDone, Context, Fail, Superseded, create_effects_table

connects = pytest.mark.parametrize("connect", CONNECTS, ids=lambda connect: connect.__name__)


@pytest.fixture
async def effects(blank_database: str) -> AsyncIterator[Effects]:
    async with looking(blank_database) as made:
        yield made


@connects
async def test_the_second_attempt_finds_the_effect_and_its_result(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    result = {"n": 2**70, "d": Decimal("0.10000000000000000001"), "none": None, "text": "ä"}
    async with connect(blank_database) as one, connect(blank_database) as two:
        await apply(attempt(1, task), one, result)
        assert await found_done(attempt(2, task), two) == result
        assert await found_done(attempt(2, task), one) == result
    assert await effects.applied() == 1


@connects
async def test_an_effect_without_a_result_has_none(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    async with connect(blank_database) as connection:
        await apply(attempt(1, task), connection)
        assert await found_done(attempt(2, task), connection) is None


@connects
async def test_the_same_token_once_more_is_the_second_time(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    """A second copy of a message, or the same attempt after a commit whose answer was lost."""
    task = new_id()
    async with connect(blank_database) as connection:
        await apply(attempt(1, task), connection, 5)
        assert await found_done(attempt(1, task), connection) == 5
    assert await effects.applied() == 1


@connects
async def test_what_raises_in_the_block_leaves_neither_effect_nor_guard(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    async with connect(blank_database) as connection:
        ctx = attempt(1, task)
        with pytest.raises(LookupError):
            await apply_and_fail(ctx, connection)
        assert await effects.applied() == 0
        await apply(ctx, connection)
    assert await effects.applied() == 1


@connects
async def test_within_a_transaction_of_the_user_s_all_is_one_commit(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    ctx = attempt(1, task)

    async def begin(ctx: Context, *, fails: bool) -> None:
        async with connection.transaction():
            await connection.execute("insert into effects default values")
            await apply(ctx, connection)
            if fails:
                raise LookupError

    async with connect(blank_database) as connection:
        with pytest.raises(LookupError):
            await begin(ctx, fails=True)
        assert await effects.applied() == 0
        async with connection.transaction():
            await apply(ctx, connection, "first")
            assert await effects.applied() == 0
        assert await effects.applied() == 1
        with pytest.raises(AlreadyDone) as done:
            await begin(attempt(2, task), fails=False)
    assert done.value.result == "first"
    assert await effects.applied() == 1


@connects
async def test_a_failed_block_in_a_transaction_that_goes_on_leaves_no_guard(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    async with connect(blank_database) as connection:
        async with connection.transaction():
            with pytest.raises(LookupError):
                await apply_and_fail(attempt(1, task), connection)
        assert await effects.applied() == 0
        await apply(attempt(2, task), connection)
    assert await effects.applied() == 1


async def test_an_open_transaction_without_a_block_is_joined(
    blank_database: str, effects: Effects
) -> None:
    """psycopg begins with the first statement: the effect waits for the user's own commit."""
    task = new_id()
    async with await psycopg.AsyncConnection.connect(blank_database) as connection:
        await connection.execute("select 1")
        await apply(attempt(1, task), connection)
        await connection.rollback()
        await connection.execute("select 1")
        await apply(attempt(1, task), connection)
        await connection.commit()
    assert await effects.applied() == 1


@connects
async def test_a_stale_token_is_told_from_a_second_time(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    async with connect(blank_database) as connection:
        await apply(attempt(7, task), connection)
        with pytest.raises(Superseded, match=r"token 7 .* has 6"):
            await apply(attempt(6, task), connection)
    assert await effects.applied() == 1


@connects
async def test_each_occurrence_has_its_effect_and_an_overtaken_one_has_none(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    async with connect(blank_database) as connection:
        await apply(attempt(1, task), connection)
        await apply(attempt(5, task, later_s=60), connection)
        assert await effects.applied() == 2
        with pytest.raises(Superseded, match="token 5"):  # a late attempt of the occurrence between
            await apply(attempt(4, task, later_s=30), connection)
        with pytest.raises(Superseded, match="token 5"):  # done, but this one does not count
            await apply(attempt(2, task), connection)
        await apply(attempt(6, task, later_s=30), connection)  # run after it, so newer
        await apply(attempt(1, new_id()), connection)
    assert await effects.applied() == 4


@connects
async def test_a_second_block_in_one_attempt_is_a_mistake_that_shows(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    ctx = attempt(1, new_id())
    async with connect(blank_database) as connection:
        await apply(ctx, connection)
        with pytest.raises(RuntimeError, match="used twice in one attempt"):
            await apply(ctx, connection)
        ctx = attempt(1, new_id())
        async with connection.transaction():
            await apply(ctx, connection)
            with pytest.raises(RuntimeError, match="used twice in one attempt"):
                await apply(ctx, connection)
    assert await effects.applied() == 2


@connects
async def test_a_result_that_cannot_be_stored_undoes_the_effect_for_good(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    async with connect(blank_database) as connection:
        with pytest.raises(Fail, match="cannot be stored"):
            await apply(attempt(1, new_id()), connection, object())
        with pytest.raises(Fail, match="more than 262144"):
            await apply(attempt(1, new_id()), connection, "x" * 300_000)
    assert await effects.applied() == 0


async def test_an_attempt_that_was_told_to_stop_begins_no_effect(
    blank_database: str, effects: Effects
) -> None:
    ctx = attempt(1, new_id())
    ctx.cancel()
    async with by_asyncpg(blank_database) as connection:
        with pytest.raises(Superseded):
            await apply(ctx, connection)
    assert await effects.applied() == 0


@connects
async def test_cancelled_in_the_middle_it_leaves_nothing(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    task = new_id()
    inside = asyncio.Event()

    async def work(connection: Any) -> None:
        async with attempt(1, task).exactly_once(connection):
            await connection.execute("insert into effects default values")
            inside.set()
            await asyncio.Event().wait()

    async with connect(blank_database) as one, connect(blank_database) as two:
        working = asyncio.create_task(work(one))
        await asyncio.wait_for(inside.wait(), 30)
        next_one = asyncio.create_task(apply(attempt(2, task), two))
        await wait_for(effects.waiting, 30, "the next attempt waits")
        working.cancel()
        await asyncio.wait_for(next_one, 30)
        with pytest.raises(asyncio.CancelledError):
            await working
    assert await effects.applied() == 1


# Connections with habits of their own


async def test_codecs_and_row_factories_of_the_user_s_do_not_matter(
    blank_database: str, effects: Effects
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as connection:
        await connection.set_type_codec(
            "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
        )
        await connection.set_type_codec(
            "timestamptz", encoder=str, decoder=str, schema="pg_catalog"
        )
        await apply(attempt(1, task), connection, {"a": "b"})
        assert await found_done(attempt(2, task), connection) == {"a": "b"}
    connected = psycopg.AsyncConnection.connect(blank_database, row_factory=dict_row)
    async with await connected as other:
        assert await found_done(attempt(2, task), other) == {"a": "b"}


async def test_the_time_zone_of_the_connection_does_not_matter(
    blank_database: str, effects: Effects
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        await one.execute("set timezone = 'Asia/Kathmandu'; set datestyle = 'German'")
        await apply(attempt(1, task), one)
        await found_done(attempt(2, task), two)


def test_a_blocking_connection_takes_with(blank_database: str) -> None:
    task = new_id()
    with psycopg.connect(blank_database, row_factory=dict_row) as connection:
        connection.execute("create table effects (id bigserial)")
        connection.commit()
        with attempt(1, task).exactly_once(connection) as effect:
            connection.execute("insert into effects default values")
            effect.result = [1]
        with pytest.raises(AlreadyDone) as done, attempt(2, task).exactly_once(connection):
            raise AssertionError("not again")
        with pytest.raises(psycopg.Error), attempt(1, new_id()).exactly_once(connection):
            connection.execute("insert into effects default values; select 1 / 0")
        with pytest.raises(Superseded), attempt(0, task).exactly_once(connection):
            raise AssertionError("not again")
        count = connection.execute("select count(*) as n from effects").fetchone()
    assert done.value.result == [1]
    assert count == {"n": 1}


async def test_other_connections_are_refused(blank_database: str) -> None:
    ctx = attempt(1, new_id())
    with pytest.raises(
        TypeError, match=r"of asyncpg, psycopg 3 or SQLAlchemy, not a builtins\.str"
    ):
        async with ctx.exactly_once("connection"):
            pass
    with pytest.raises(TypeError, match=r"not a builtins\.int"), ctx.exactly_once(5):
        pass
    async with by_asyncpg(blank_database) as connection:
        with pytest.raises(TypeError, match="is async: use it in an async function"):
            ctx.exactly_once(connection).__enter__()
    with (
        psycopg.connect(blank_database) as blocking,
        pytest.raises(TypeError, match="is not async: use it in a plain function"),
    ):
        await ctx.exactly_once(blocking).__aenter__()


# The table


@connects
async def test_the_table_can_be_made_ahead_and_twice(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    async with connect(blank_database) as connection:
        await create_effects_table(connection)
        await create_effects_table(connection)
    assert await effects.guards() == 0


async def test_the_command_prints_what_makes_the_table(
    blank_database: str, effects: Effects, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["effects-sql"]) == 0
    await effects.execute(capsys.readouterr().out)
    async with by_asyncpg(blank_database) as connection:
        await connection.execute("set default_transaction_read_only = on")
        await create_effects_table(connection)  # nothing is left to do
    assert await effects.guards() == 0


async def test_many_first_uses_at_once_make_one_table(
    blank_database: str, effects: Effects
) -> None:
    async with asyncpg.create_pool(blank_database, min_size=8, max_size=8) as pool:

        async def first() -> None:
            async with pool.acquire() as connection:
                await apply(attempt(1, new_id()), connection)

        await asyncio.gather(*(first() for _ in range(8)))
    assert await effects.guards() == 8


@connects
async def test_the_first_use_may_be_within_a_transaction_of_the_user_s(
    blank_database: str, effects: Effects, connect: Connect
) -> None:
    async with connect(blank_database) as connection, connection.transaction():
        await connection.execute("insert into effects default values")
        await apply(attempt(1, new_id()), connection)
    assert await effects.applied() == 2
    assert await effects.guards() == 1


async def test_a_table_that_the_block_misses_is_the_handler_s_own_affair(
    blank_database: str, effects: Effects
) -> None:
    async with by_asyncpg(blank_database) as connection:
        with pytest.raises(asyncpg.UndefinedTableError, match="nowhere"):
            async with attempt(1, new_id()).exactly_once(connection):
                await connection.execute("insert into nowhere default values")


async def test_who_may_not_make_the_table_is_told_what_to_run(
    blank_database: str, effects: Effects
) -> None:
    async with by_asyncpg(blank_database) as connection:
        await connection.execute("set default_transaction_read_only = on")
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError) as refused:
            await apply(attempt(1, new_id()), connection)
    assert "duly effects-sql" in refused.value.__notes__[0]
