"""What moves with a slot: whoever adds a table has to say whether its rows do."""

import asyncpg

from duly.storage.move_copies import WATCHED

_STAY = {
    "alerts": "an open one is raised anew where the task is",
    "archive_source": "of the store",
    "archived_days": "of the store",
    "audit": "notes stay where they were written",
    "bulk_jobs": "in every store",
    "completing": "empty again at each commit: what it held is in `tasks` then",
    "duly_migrations": "of the store",
    "forwarded": "with regions, which do not go with several stores",
    "queues": "in every store",
    "region_turns": "with regions",
    "secrets": "in the first store",
    "slot_fences": "of the move",
    "slot_move_changes": "of the move",
    "slot_moves": "of the move",
    "slots": "handed over",
    "submission_limits": "in every store",
    "task_waits": "copied with their parent, whose row changes with them",
    "this_store": "of the store",
}


async def test_every_table_moves_or_is_said_to_stay(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "select relname from pg_class where relkind in ('r', 'p') and not relispartition"
            " and relnamespace = 'public'::regnamespace"
        )
    finally:
        await connection.close()
    assert {row["relname"] for row in rows} == {table for table, _ in WATCHED} | _STAY.keys()
