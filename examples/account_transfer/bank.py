"""The bank's database: accounts, and one line for every transfer that was applied."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

import duly

ACCOUNTS = 50
OPENING = 1_000

_TABLES = f"""
create schema if not exists bank;
create table if not exists bank.accounts (
    id      integer primary key,
    balance bigint not null check (balance >= 0)
);
-- Nothing here is unique: a transfer that was applied twice would show.
create table if not exists bank.transfers (
    task          uuid    not null,
    source        integer not null,
    target        integer not null,
    amount        bigint  not null,
    balance_after bigint  not null
);
insert into bank.accounts select id, {OPENING} from generate_series(1, {ACCOUNTS}) as id
on conflict do nothing;
"""

# A frozen worker must not hold its locks for ever: PostgreSQL rolls back for it. PostgreSQL 17 and
# newer do so also if it was frozen between the messages of one statement.
_LIMIT = """
select set_config('transaction_timeout', '15s', false)
where current_setting('transaction_timeout', true) is not null
"""


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Any]:
    """A connection, for the length of the block. A pool does as well."""
    connection = await asyncpg.connect(
        url,
        timeout=10,
        command_timeout=30,
        server_settings={"search_path": "bank", "idle_in_transaction_session_timeout": "5s"},
    )
    try:
        await connection.execute(_LIMIT)
        yield connection
    finally:
        await connection.close(timeout=10)


async def create(url: str) -> None:
    """Make the tables and open the accounts, unless that has been done."""
    async with connect(url) as connection:
        await connection.execute(_TABLES)
        await duly.create_effects_table(connection)


async def apply(connection: Any, task: str, source: int, target: int, amount: int) -> int:
    """Move the money; returns the source's new balance. Fails if there is not enough of it."""
    # In one order everywhere, lest two transfers wait for each other.
    await connection.execute(
        "select from accounts where id in ($1, $2) order by id for update", source, target
    )
    balance: int = await connection.fetchval("select balance from accounts where id = $1", source)
    if balance < amount:
        raise duly.Fail(f"account {source} has {balance}, less than {amount}")
    await connection.execute(
        "update accounts set balance = balance + case id when $1 then -$3::bigint else $3 end "
        "where id in ($1, $2)",
        source,
        target,
        amount,
    )
    await connection.execute(
        "insert into transfers values ($1, $2, $3, $4, $5)",
        task,
        source,
        target,
        amount,
        balance - amount,
    )
    return balance - amount
