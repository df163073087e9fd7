"""A primary with a synchronous standby: commits that wait, and the primary that is another one now."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
import asyncpg
import pytest
from cutting_proxy import cutting_proxy
from postgres_pair import PostgresPair
from store_rig import opened, query, submit
from waiting import wait_for

from duly.storage import upkeep
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.migrate import migrate
from duly.storage.writer import Writer

WAITING = (
    "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'duly'"
)


@pytest.fixture
async def pair(postgres_pair: PostgresPair) -> PostgresPair:
    """The pair, with a schema."""
    await migrate(postgres_pair.url)
    return postgres_pair


@pytest.fixture
async def db(pair: PostgresPair) -> AsyncIterator[Database]:
    """A pool of three that knows both hosts, and gives up soon."""
    options: dict[str, Any] = {"statement_timeout_s": 2, "acquire_timeout_s": 4, "pool_size": 3}
    async with opened(pair.url, **options) as one:
        yield one


async def look(pair: PostgresPair, sql: str) -> list[Any]:
    """Rows from the primary, by a session of the test's own."""
    connection = await asyncpg.connect(pair.primary.url, timeout=30)
    try:
        return list(await connection.fetch(sql))
    finally:
        await connection.close()


async def test_a_commit_that_waits_is_in_doubt_and_never_cut_short(
    pair: PostgresPair, db: Database
) -> None:
    await submit(db)
    pair.standby.kill9()
    three = await asyncio.gather(*(submit(db) for _ in range(3)), return_exceptions=True)
    failures = [one for one in three if isinstance(one, StoreUnavailableError)]
    assert len(failures) == 3
    assert all(one.in_doubt and "no answer within" in str(one) for one in failures)
    # As many sessions as the pool has room for, however many come: no fourth.
    with pytest.raises(StoreUnavailableError, match="no free connection") as refused:
        await submit(db)
    assert not refused.value.in_doubt
    await asyncio.sleep(0.5)  # time enough for whoever would want to end them
    assert len(await look(pair, WAITING)) == 3
    assert len(await look(pair, "select from tasks")) == 1  # nobody sees what is not replicated
    await anyio.to_thread.run_sync(pair.standby.restart)
    await failures[0].settled(60)
    await wait_for(lambda: submit(db), 60, "writes again", ignore=(StoreUnavailableError,))
    assert len(await query(db, "select from tasks")) >= 5


async def test_a_wait_that_was_cancelled_is_no_success(pair: PostgresPair, db: Database) -> None:
    """PostgreSQL says OK, with a warning: the commit is on the primary only."""
    await submit(db)
    pair.standby.kill9()
    submitting = asyncio.create_task(submit(db))

    async def cancelled() -> bool:
        return bool(
            await look(pair, WAITING.replace("select pid", "select pg_cancel_backend(pid)"))
        )

    await wait_for(cancelled, 30, "an operator cancels the wait")
    with pytest.raises(StoreUnavailableError) as caught:
        await submitting
    assert caught.value.in_doubt


async def test_a_write_is_what_readiness_asks_for(pair: PostgresPair, db: Database) -> None:
    await upkeep.try_write(db)
    pair.standby.kill9()
    with pytest.raises(StoreUnavailableError):
        await upkeep.try_write(db)
    assert await query(db, "select 1")


async def test_writes_go_on_at_the_server_that_was_promoted(
    pair: PostgresPair, db: Database
) -> None:
    await asyncio.gather(*(submit(db) for _ in range(3)))
    await anyio.to_thread.run_sync(pair.primary.kill9)
    with pytest.raises(StoreUnavailableError):
        await submit(db)
    await anyio.to_thread.run_sync(pair.promote)
    await wait_for(lambda: submit(db), 60, "writes resume", ignore=(StoreUnavailableError,))
    assert len(await query(db, "select from tasks")) == 4


async def test_hosts_that_swallow_everything_share_the_time(pair: PostgresPair) -> None:
    async with cutting_proxy(pair.standby.url) as proxy:
        proxy.swallow()
        credentials, _, rest = pair.url.rpartition("@")
        hole = proxy.url.rpartition("@")[2].partition("/")[0]
        began = time.monotonic()
        connection = await Writer(f"{credentials}@{hole},{hole},{rest}").connect(8, {})
        connection.terminate()
        assert proxy.accepted == 2
        assert time.monotonic() - began < 30  # not 8 seconds for each


async def test_a_first_host_that_swallows_everything_is_passed_by(pair: PostgresPair) -> None:
    async with cutting_proxy(pair.standby.url) as proxy:
        proxy.swallow()
        credentials, _, rest = pair.url.rpartition("@")
        hole = proxy.url.rpartition("@")[2].partition("/")[0]
        async with opened(f"{credentials}@{hole},{rest}", acquire_timeout_s=6) as db:
            await submit(db)
            assert proxy.accepted == 1
            await asyncio.gather(*(query(db, "select pg_sleep(0.1)") for _ in range(4)))
            # The host that was right comes first now: none of these had to wait for the other.
            assert proxy.accepted == 1
