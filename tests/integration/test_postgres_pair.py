"""The pair that other tests fail over: what it says about itself is true."""

import asyncpg
import pytest
from databases import run_aside
from postgres_pair import PostgresPair
from waiting import block_until


def test_a_standby_follows_takes_over_and_is_followed(postgres_pair: PostgresPair) -> None:
    pair, first = postgres_pair, postgres_pair.primary
    pair.execute("create table kept (n int)")
    pair.execute("insert into kept values (1)")
    assert pair.execute("select count(*) from kept", on=pair.standby) == 1
    assert pair.execute("select sync_state from pg_stat_replication") == "sync"
    url = pair.url
    assert _writer(url) == pair.primary.port

    first.kill9()
    pair.promote()
    assert pair.standby is first
    assert _timeline(pair) == 2
    pair.execute("insert into kept values (2)")
    assert (_writer(url), pair.url) == (pair.primary.port, url)

    pair.rejoin()
    assert pair.execute("select sum(n) from kept", on=first) == 3
    pair.primary.kill9()
    pair.promote()
    assert _timeline(pair) == 3
    assert pair.execute("select sum(n) from kept", on=first) == 3


def test_a_commit_waits_for_the_standby_and_only_if_asked_to(postgres_pair: PostgresPair) -> None:
    pair = postgres_pair
    pair.execute("create table kept (n int)")
    pair.standby.kill9()
    with pytest.raises(TimeoutError):
        run_aside(_insert(pair.primary.url, 1))
    pair.standby.restart()
    pair.wait_streaming()
    run_aside(_insert(pair.primary.url))
    pair.standby.pause()
    pair.synchronous(False)
    run_aside(_insert(pair.primary.url))
    pair.standby.resume()
    block_until(
        lambda: pair.execute("select count(*) from kept", on=pair.standby) == 3,
        30,
        "the standby catches up",
    )


def test_the_old_primary_can_come_back_beside_the_new_one(postgres_pair: PostgresPair) -> None:
    pair, old = postgres_pair, postgres_pair.primary
    old.kill9()
    pair.promote()
    old.restart()
    assert pair.execute("select pg_is_in_recovery()", on=old) is False
    pair.rejoin()
    assert pair.execute("select pg_is_in_recovery()", on=old) is True


def _timeline(pair: PostgresPair) -> int:
    # Of the WAL that is being written: pg_control_checkpoint() has it only from the next checkpoint on.
    return int(pair.execute("select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"), 16)


async def _insert(url: str, timeout_s: float = 60) -> None:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        await connection.execute("insert into kept values (1)", timeout=timeout_s)
    finally:
        connection.terminate()


def _writer(url: str) -> int:
    """The port of the server that a client of `url` ends up at."""

    async def ask() -> int:
        connection = await asyncpg.connect(url, timeout=60)
        try:
            port: int = await connection.fetchval("select inet_server_port()")
            return port
        finally:
            await connection.close()

    return run_aside(ask())
