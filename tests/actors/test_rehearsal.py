"""The connections that a burst wants are open before it comes, and stay in use."""

import anyio
from store_rig import query
from waiting import wait_for

from duly.actors.context import Context
from duly.actors.rehearsal import Rehearsal
from duly.storage.database import Database


async def test_connections_are_open_and_know_the_statements_before_the_first_burst(
    context: Context,
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Rehearsal(context).serve, anyio.Event())
        size = min(6, context.db.size)
        await wait_for(lambda: context.db.connections == size, 60, f"{size} connections")
        tasks.cancel_scope.cancel()
    assert await query(context.db, "select from slots where owner is not null") == []


async def test_a_store_that_is_away_holds_up_nothing(context: Context) -> None:
    away = Database("postgresql://127.0.0.1:1/nothing", acquire_timeout_s=0.2)
    context.db = away
    rehearsal = Rehearsal(context)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsal.serve, anyio.Event())
        rehearsal.request_stop()  # it ends by itself then, and has not crashed
    await away.close()
