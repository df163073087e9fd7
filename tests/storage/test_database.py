"""The pool: no statement is cut short from here, and no trouble of the server outlives itself."""

import asyncio
import random
import time
from typing import Any

import asyncpg
import pytest
from cutting_proxy import cutting_proxy
from servers import ServerFactory
from slow_proxy import slow_proxy
from store_rig import claimed, ended, opened, own_all, query, statuses, submit
from waiting import wait_for

from duly.nodes.embedded import EmbeddedServers
from duly.storage import claims
from duly.storage.database import Database
from duly.storage.doubts import Doubts
from duly.storage.errors import StoreUnavailableError
from duly.storage.migrate import migrate
from duly.storage.writer import Writer

ACTIVE = (
    "select query from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and state <> 'idle'"
)

# Ends with SELECT, as Duly's own statements do.
WRITE = """
    with one as (insert into idempotency_keys values ($1, gen_random_uuid(), '', now())) select 1
"""


async def works(db: Database) -> bool:
    return bool(await query(db, "select 1"))


async def quiet(db: Database) -> None:
    """Wait until no session is busy."""

    async def none_active() -> bool:
        return await query(db, ACTIVE) == []

    await wait_for(none_active, 60, "no session is left busy")


async def test_a_cancelled_caller_leaves_the_statement_to_end(db: Database) -> None:
    """However often, and wherever the cancel falls: nothing half done, nothing busy."""
    rows = await submit(db, 200)
    epochs = await own_all(db)

    async def complete(at: int) -> None:
        claim = await claims.claim(db, "node-a", [rows[at]], epochs, rows[at].next_run_at)
        await claims.complete(db, [ended(task) for task in claim.tasks], rows[at].next_run_at)

    for at in range(len(rows)):
        calling = asyncio.create_task(complete(at))
        await asyncio.sleep(at % 10 * 0.0004)
        calling.cancel()
        await asyncio.wait({calling})
    async with asyncio.timeout(60):
        await asyncio.gather(*(works(db) for _ in range(20)))
    await quiet(db)
    found = await statuses(db, [row.id for row in rows])
    assert set(found) <= {"pending", "running", "completed"}
    assert len(await query(db, "select from runs")) == found.count("completed")


async def test_a_cancelled_transaction_is_committed_all_the_same(db: Database) -> None:
    inside = asyncio.Event()

    async def work(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("create table one (n int)")
            inside.set()
            await connection.execute("select pg_sleep(0.2)")
            await connection.execute("insert into one values (1)")

    calling = asyncio.create_task(db.run(work))
    await inside.wait()
    calling.cancel()
    await asyncio.wait({calling})

    async def ended_well() -> bool:
        return len(await query(db, "select from one")) == 1

    await wait_for(ended_well, 60, "the row is there", ignore=(asyncpg.UndefinedTableError,))
    await quiet(db)


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(fresh_database: str) -> None:
    async with opened(fresh_database, statement_timeout_s=1) as db:
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="statement timeout") as caught:
            await query(db, "select pg_sleep(60)")
        assert not caught.value.in_doubt  # the server says that it did nothing
        assert time.monotonic() - began < 30
        await quiet(db)
        assert await works(db)


async def test_c39_a_pool_that_is_used_up_says_so_in_time(fresh_database: str) -> None:
    async with opened(fresh_database, pool_size=2, acquire_timeout_s=2) as db:
        release, holding = asyncio.Event(), asyncio.Semaphore(0)

        async def hold(connection: Any) -> None:
            await connection.execute("select 1")
            holding.release()
            await release.wait()

        holders = [asyncio.create_task(db.run(hold)) for _ in range(2)]
        for _ in holders:
            await holding.acquire()
        with pytest.raises(StoreUnavailableError) as caught:
            await works(db)
        assert not caught.value.in_doubt
        release.set()
        await asyncio.gather(*holders)
        assert await works(db)


async def test_a_mistake_of_ours_is_not_taken_for_trouble(db: Database) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await query(db, "select from nowhere")
    with pytest.raises(asyncpg.DataError):
        await query(db, "select $1::int", "text")
    assert await works(db)


async def test_an_ended_session_is_replaced(db: Database) -> None:
    async def die(connection: Any) -> None:
        await connection.execute("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailableError) as caught:
        await db.run(die)
    assert caught.value.in_doubt
    assert await works(db)


async def test_a_connection_lost_on_its_way_back_spoils_no_answer(
    db: Database, database_url: str
) -> None:
    async def answer_then_lose(connection: Any) -> str:
        pid = connection.get_server_pid()
        other = await asyncpg.connect(database_url, timeout=10)
        await other.execute("select pg_terminate_backend($1, 5000)", pid)
        await other.close()
        return "recorded"

    assert await db.run(answer_then_lose) == "recorded"
    assert await works(db)


async def test_a_stalled_transaction_is_trouble_of_the_server(fresh_database: str) -> None:
    """As after a SIGSTOP of the node in the middle of one."""
    async with opened(fresh_database) as db:

        async def stall(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("set local idle_in_transaction_session_timeout = 50")
                await wait_for(connection.is_closed, 60, "the server has ended it")
                await connection.execute("select 1")

        with pytest.raises(StoreUnavailableError):
            await db.run(stall)
        assert await works(db)


async def test_c37_the_schema_may_change_under_prepared_statements(fresh_database: str) -> None:
    async with opened(fresh_database, pool_size=3) as db:
        changes = [
            "alter table tasks add column later text",
            "create index later on tasks (later)",
            "alter table finished_tasks add column later text",
            "alter table tasks alter column worker type varchar",
            "drop index later",
            "alter table tasks drop column later",
        ]
        for change in ["select 1", *changes]:
            await query(db, change)
            some = await claimed(db, 5)
            assert len(await claims.complete(db, [ended(t) for t in some], some[0].occurrence)) == 5


async def test_c37_a_transaction_with_an_outdated_plan_is_repeated(db: Database) -> None:
    """By itself a statement is prepared anew by the driver; within a transaction it fails."""
    await query(db, "create table one (n int)")

    async def work(connection: Any) -> list[Any]:
        async with connection.transaction():
            await connection.execute("insert into one values (1)")
            return list(await connection.fetch("select * from one"))

    assert [tuple(row) for row in await db.run(work)] == [(1,)]
    await query(db, "alter table one add column later text")
    assert [tuple(row) for row in await db.run(work)] == [(1, None), (1, None)]


class TestOwnServer:
    """What needs a server that may be stopped."""

    @pytest.fixture
    async def servers(self, make_servers: ServerFactory) -> EmbeddedServers:
        servers = make_servers()
        await migrate(servers.database_url)
        return servers

    async def test_c41_a_server_that_does_not_answer(self, servers: EmbeddedServers) -> None:
        async with opened(servers.database_url, statement_timeout_s=1, pool_size=3) as db:
            await asyncio.gather(*(works(db) for _ in range(3)))
            servers.postgres.pause()
            began = time.monotonic()
            answers = await asyncio.gather(*(works(db) for _ in range(6)), return_exceptions=True)
            took_s = time.monotonic() - began
            servers.postgres.resume()
            assert {type(answer) for answer in answers} == {StoreUnavailableError}
            assert took_s < 30
            await wait_for(
                lambda: works(db), 60, "it answers again", ignore=(StoreUnavailableError,)
            )
            await quiet(db)

    async def test_a_server_that_was_killed_and_came_back(self, servers: EmbeddedServers) -> None:
        async with opened(servers.database_url) as db:
            some = await claimed(db, 3)
            servers.postgres.kill9()
            with pytest.raises(StoreUnavailableError):
                await claims.complete(db, [ended(task) for task in some], some[0].occurrence)
            with pytest.raises(StoreUnavailableError) as caught:
                await works(db)
            assert not caught.value.in_doubt
            servers.postgres.restart()
            ids = [task.id for task in some]

            async def all_running() -> bool:
                return await statuses(db, ids) == ["running"] * 3

            await wait_for(all_running, 60, "it is back", ignore=(StoreUnavailableError,))
            assert len(await claims.complete(db, [ended(t) for t in some], some[0].occurrence)) == 3

    async def test_c38_a_writer_that_became_read_only(self, servers: EmbeddedServers) -> None:
        """Nothing is terminated, and of the pool's connections only one is used after it."""
        async with opened(servers.database_url, pool_size=3) as db:
            await asyncio.gather(*(query(db, "select pg_sleep(0.2)") for _ in range(3)))
            old = await sessions(servers.database_url)
            assert len(old) == 3
            admin = await asyncpg.connect(servers.database_url, timeout=30)
            try:
                await admin.execute("alter system set default_transaction_read_only = on")
                await admin.execute("select pg_reload_conf()")

                async def refused() -> bool:
                    try:
                        await submit(db)
                    except StoreUnavailableError as error:
                        return "read-only" in str(error) and not error.in_doubt
                    return False

                await wait_for(refused, 30, "writes are refused")

                async def all_gone() -> bool:
                    return not (old & await sessions(servers.database_url))

                await wait_for(all_gone, 30, "every connection is given up, not only the one")
                with pytest.raises(StoreUnavailableError, match="refuses to write"):
                    await works(db)
                await admin.execute("set default_transaction_read_only = off")
                await admin.execute("alter system reset default_transaction_read_only")
                await admin.execute("select pg_reload_conf()")
                await wait_for(
                    lambda: submit(db), 30, "writes again", ignore=(StoreUnavailableError,)
                )
            finally:
                await admin.close()

    async def test_reads_tell_too_that_the_writer_became_read_only(
        self, servers: EmbeddedServers
    ) -> None:
        async with opened(servers.database_url) as db:
            assert await works(db)
            admin = await asyncpg.connect(servers.database_url, timeout=30)
            await admin.execute("alter system set default_transaction_read_only = on")
            await admin.execute("select pg_reload_conf()")
            await admin.close()

            async def refused() -> bool:
                try:
                    return not await works(db)
                except StoreUnavailableError as error:
                    return "refuses to write" in str(error)

            await wait_for(refused, 30, "the connection is given up without a write")


async def sessions(url: str) -> set[int]:
    """Process ids of the sessions that pools have in this database."""
    connection = await asyncpg.connect(url, timeout=30)
    try:
        found = (
            "select pid from pg_stat_activity where application_name = 'duly'"
            " and datname = current_database()"
        )
        return {row["pid"] for row in await connection.fetch(found)}
    finally:
        await connection.close()


class TestLostAnswers:
    """A proxy that loses answers, and the sessions that are left behind."""

    async def test_a_lost_answer_is_settled_when_its_session_is_gone(
        self, fresh_database: str
    ) -> None:
        async with cutting_proxy(fresh_database) as proxy, opened(proxy.url) as db:
            await query(db, WRITE, "1")
            proxy.cut_at()
            with pytest.raises(StoreUnavailableError) as caught:
                await query(db, WRITE, "2")
            assert caught.value.in_doubt
            await caught.value.settled(30)
            assert len(await query(db, "select from idempotency_keys")) == 2

    async def test_what_arrives_after_its_client_has_gone_is_not_done(
        self, fresh_database: str
    ) -> None:
        """The statement is on the way all the time; once settled, it will never be carried out."""
        async with (
            cutting_proxy(fresh_database) as proxy,
            opened(proxy.url, statement_timeout_s=1, acquire_timeout_s=1) as db,
        ):
            await query(db, WRITE, "1")
            proxy.hold_requests()
            with pytest.raises(StoreUnavailableError, match="no answer") as caught:
                await query(db, WRITE, "2")
            assert caught.value.in_doubt
            with pytest.raises(StoreUnavailableError) as unknown:
                await caught.value.settled(0.1)
            assert unknown.value.in_doubt
            # The way to the server is open again for others, not for what is held.
            direct = Doubts(Writer(fresh_database), "duly")
            doubt = direct.add(next(iter(await sessions(fresh_database))))
            await asyncio.wait_for(doubt.over.wait(), 30)
            direct.close()
            proxy.pass_on()
            await caught.value.settled(30)
            assert len(await query(db, "select from idempotency_keys")) == 1

    async def test_c41_connections_that_swallow_everything_are_all_replaced(
        self, fresh_database: str
    ) -> None:
        async with (
            cutting_proxy(fresh_database) as proxy,
            opened(proxy.url, statement_timeout_s=1, pool_size=4) as db,
        ):
            await asyncio.gather(*(query(db, "select pg_sleep(0.2)") for _ in range(4)))
            proxy.swallow()
            swallowed = asyncio.create_task(works(db))
            await asyncio.sleep(0)
            proxy_was_used = asyncio.get_running_loop().time()
            with pytest.raises(StoreUnavailableError, match="no answer within"):
                await swallowed
            assert asyncio.get_running_loop().time() - proxy_was_used < 30
            proxy.pass_on()
            # None of the other three costs anybody his time any more.
            await wait_for(
                lambda: works(db), 30, "a new connection", ignore=(StoreUnavailableError,)
            )
            await asyncio.gather(*(works(db) for _ in range(8)))

    async def test_c46_a_thousand_cancelled_calls_leave_no_reply_outstanding(
        self, fresh_database: str
    ) -> None:
        chance = random.Random(46)
        async with slow_proxy(fresh_database, 0.005) as url, opened(url, pool_size=8) as db:
            await works(db)

            async def cancelled(n: int) -> None:
                calling = asyncio.create_task(query(db, "select $1::int", n))
                await asyncio.sleep(chance.random() * 0.05)
                calling.cancel()
                await asyncio.wait({calling})

            for start in range(0, 1000, 50):
                await asyncio.gather(*(cancelled(start + n) for n in range(50)))
                # A reply left behind would be taken for that of the next call.
                found = await asyncio.gather(
                    *(query(db, "select $1::int", -n) for n in range(start, start + 10))
                )
                assert [rows[0][0] for rows in found] == [-n for n in range(start, start + 10)]

            await quiet(db)
            assert db.connections <= 8

            async def as_many_as_known() -> bool:
                return len(await sessions(fresh_database)) == db.connections

            await wait_for(as_many_as_known, 60, "the server has no session that the pool forgot")
