"""Which connection of those that are kept runs the next statement."""

from typing import Any

import anyio
from store_rig import query

from duly.storage.database import Database


async def test_connections_take_turns(database_url: str) -> None:
    """None grows so old that it has to be opened anew when a burst comes."""
    db = Database(database_url, pool_size=4)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(query, db, "select pg_sleep(0.2)")
    assert db.connections == 2
    pids = [(await query(db, "select pg_backend_pid() as pid"))[0]["pid"] for _ in range(4)]
    assert len(set(pids)) == 2
    await db.close()


async def test_statements_stay_prepared(database_url: str) -> None:
    """To prepare one anew every five minutes, as the library does by default, is a transaction at rest."""
    db = Database(database_url, pool_size=1)

    async def lifetime_s(connection: Any) -> float:
        limit: float = connection._config.max_cached_statement_lifetime
        return limit

    assert await db.run(lifetime_s) == 0
    await db.close()
