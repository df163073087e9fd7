"""Behind a real PgBouncer in transaction mode, with fewer connections than the node has: a statement rarely follows
another of its own connection.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from node_rig import RunningNode, running_node
from pgbouncer import pooled
from waiting import wait_for
from worker_rig import running

from duly import Context, Worker
from duly.nodes.client.models import Task
from duly.storage.database import Database
from duly.storage.errors import RefusedError, StoreUnavailableError
from duly.storage.migrate import migrate, migrations, plan
from duly.storage.move_session import MoveSession

_CONNECTIONS = 3


@pytest.fixture
def pooler(blank_database: str, tmp_path: Path) -> Iterator[str]:
    """URL of an empty database through a pooler."""
    with pooled(blank_database, tmp_path, size=_CONNECTIONS) as url:
        yield url


async def _ends(node: RunningNode, task_id: UUID) -> Task:
    async def ended() -> Task | None:
        seen = await node.client.get(task_id)
        return seen if seen.status in ("completed", "failed") else None

    return await wait_for(ended, 60, "the task has ended")


async def test_tasks_are_done_once_also_when_the_server_ends_every_connection(
    pooler: str, blank_database: str, redis_url: str
) -> None:
    assert len(await plan(pooler)) == len(migrations())
    assert await migrate(pooler) == [one.name for one in migrations()]
    runs: Counter[Any] = Counter()
    worker = Worker(redis_url)

    @worker.task("count")
    async def count(ctx: Context, payload: int) -> int:
        runs[payload] += 1
        return payload

    async with running_node(pooler, redis_url) as node, running(worker):
        tasks = [await node.client.submit("count", n) for n in range(20)]
        ids = await node.client.submit_batch({"type": "count", "payload": n} for n in range(20, 60))
        periodic = await node.client.submit("count", -1, schedule={"every": 0.5})
        for task in tasks:
            assert (await _ends(node, task.id)).result == task.payload
        await wait_for(lambda: runs[-1] >= 3, 60, "the periodic task runs")

        direct = await asyncpg.connect(blank_database, timeout=60, command_timeout=60)
        try:
            ended = await direct.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            assert 1 <= len(ended) <= _CONNECTIONS
            before = runs[-1]
            await wait_for(lambda: runs[-1] >= before + 3, 60, "it goes on")
            later = await node.client.submit("count", 60, delay=0.2)
            assert (await _ends(node, later.id)).result == 60
            await node.client.cancel(periodic.id)
            for one in ids:
                assert (await _ends(node, one)).status == "completed"
            assert {one.id for one in await node.client.list(type="count")} >= set(ids)
            assert [one.verdict for one in await node.client.ledger(ids[0])] == ["completed"]
            outcomes = await direct.fetch(
                "select outcome, count(*) from runs where task_id <> $1 group by 1", periodic.id
            )
        finally:
            await direct.close()
    assert [tuple(row) for row in outcomes] == [("completed", 61)]
    assert {runs[n] for n in range(61)} == {1}


async def test_each_statement_has_the_settings_that_a_session_has(
    pooler: str, blank_database: str
) -> None:
    direct = await asyncpg.connect(blank_database, timeout=60, command_timeout=60)
    database = blank_database.rsplit("/", 1)[1]
    await direct.execute(f'alter database "{database}" set synchronous_commit = off')
    await direct.execute(
        f"alter database \"{database}\" set default_transaction_isolation = 'serializable'"
    )
    await direct.close()
    db = Database(pooler, statement_timeout_s=7)

    async def look(connection: Any) -> tuple[Any, ...]:
        return tuple(
            await connection.fetchrow(
                "select current_setting('synchronous_commit'), current_setting('transaction_isolation'),"
                " current_setting('statement_timeout'), current_setting('timezone'),"
                " current_setting('jit'), current_setting('application_name'), pg_sleep(0.05)::text"
            )
        )

    try:
        seen = await asyncio.gather(*(db.run(look) for _ in range(20)))
    finally:
        await db.close()
    assert {row[:-1] for row in seen} == {("on", "read committed", "7s", "UTC", "off", "duly")}


async def test_a_statement_in_doubt_is_settled_by_the_process_that_serves_it(pooler: str) -> None:
    db = Database(pooler, statement_timeout_s=0.5, application="duly doubtful")
    told: list[int] = []

    async def hang(connection: Any) -> None:
        told.append(await connection.fetchval("select pg_backend_pid()"))
        # The server would end it otherwise.
        await connection.execute("set local statement_timeout = 0")
        await connection.execute("select pg_sleep(300)")

    async def others(connection: Any) -> list[Any]:
        rows: list[Any] = await connection.fetch(
            "select pid from pg_stat_activity where pid = any($1::int[])", told
        )
        return rows

    try:
        with pytest.raises(StoreUnavailableError) as caught:
            await db.run(hang)
        assert caught.value.in_doubt
        await caught.value.settled(60)
        assert await db.run(others) == []
    finally:
        await db.close()


async def test_what_needs_a_session_says_so(pooler: str) -> None:
    with pytest.raises(RefusedError, match="give the URL of PostgreSQL itself"):
        async with MoveSession(pooler, 0):
            pass


async def test_another_mode_is_refused(pooler: str) -> None:
    with pytest.raises(RefusedError, match="pooler: must be transaction"):
        Database(pooler.replace("=transaction", "=statement"))
