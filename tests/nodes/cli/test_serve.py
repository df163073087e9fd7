"""node, worker and migrate, as far as they go without a running node."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

Duly = Callable[..., Awaitable[Any]]


async def test_a_node_needs_its_servers_named(duly: Duly) -> None:
    answer = await duly("node")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "duly: database_url is not set: give --database-url or DULY_DATABASE_URL\n"
    )
    answer = await duly("node", "--database-url", "postgresql://127.0.0.1/x")
    assert answer.err == "duly: redis_url is not set: give --redis-url or DULY_REDIS_URL\n"


async def test_a_wrong_setting_is_named_with_what_is_allowed(
    duly: Duly, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flag = await duly("node", "--lease-ttl-s", "99")
    assert flag.code == 2
    assert flag.err == (
        "duly: lease_ttl_s = '99' (from --lease-ttl-s): must be a number from 1 to 60\n"
    )
    file = tmp_path / "duly.toml"
    file.write_text("log_level = 'loud'")
    assert (
        "must be one of debug, info, warning, error" in (await duly("node", "--config", file)).err
    )
    monkeypatch.setenv("DULY_LEASE_TTL", "5")
    assert "did you mean DULY_LEASE_TTL_S?" in (await duly("migrate")).err


async def test_migrate_says_what_it_did(duly: Duly, blank_database: str) -> None:
    first = await duly("migrate", "--database-url", blank_database)
    assert first.code == 0
    assert first.out.splitlines()[0] == "applied 0001_tasks.sql"
    again = await duly("migrate", "--database-url", blank_database)
    assert (again.code, again.out) == (0, "the schema is up to date\n")


async def test_a_plan_is_sql_with_the_locks_as_comments(duly: Duly, blank_database: str) -> None:
    planned = await duly("migrate", "--plan", "--database-url", blank_database)
    assert planned.code == 0
    assert (
        "\n-- 0001_tasks.sql\n\n-- no lock that others wait for: a new table\ncreate table tasks ("
        in (planned.out)
    )
    connection = await asyncpg.connect(blank_database, timeout=60, command_timeout=60)
    try:
        trial = connection.transaction()
        await trial.start()
        await connection.execute(planned.out)
        assert await connection.fetchval("select count(*) from slots") == 256
        await trial.rollback()
    finally:
        await connection.close()
    applied = (await duly("migrate", "--database-url", blank_database)).out
    assert [
        f"applied {line[3:]}" for line in planned.out.splitlines() if line.startswith("-- 00")
    ] == (applied.splitlines()), "or the plan itself has changed something"
    after = await duly("migrate", "--plan", "--database-url", blank_database)
    assert (after.code, after.out) == (0, "-- the schema is up to date\n")


async def test_no_postgresql_is_one_line(duly: Duly) -> None:
    answer = await duly("migrate", "--database-url", "postgresql://127.0.0.1:1/x")
    assert answer.code == 1
    assert answer.err.startswith("duly: no connection to PostgreSQL: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("target", ["", ":worker", "tasks.py", "a/b:worker", ".relative:worker"])
async def test_a_target_that_is_no_module(duly: Duly, target: str) -> None:
    answer = await duly("worker", target)
    assert answer.code == 2
    assert "is not MODULE:NAME" in answer.err


async def test_a_module_that_is_not_there(duly: Duly) -> None:
    answer = await duly("worker", "there_is_no_such_module:worker")
    assert answer.code == 2
    assert answer.err.startswith("duly: cannot import 'there_is_no_such_module': ")


async def test_a_name_that_is_no_worker(duly: Duly) -> None:
    answer = await duly("worker", "json:loads")
    assert (answer.code, answer.err) == (2, "duly: 'loads' in 'json' is not a duly.Worker\n")
    answer = await duly("worker", "json")
    assert answer.err == "duly: 'worker' in 'json' is not a duly.Worker\n"
