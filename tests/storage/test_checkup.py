"""What `duly doctor` makes of settings, of PostgreSQL, Redis and the lease servers."""

import time
from pathlib import Path
from typing import Any

import pytest
from private_valkey import several
from store_rig import opened, query

from duly.storage import checkup
from duly.storage.checkup import Finding
from duly.storage.redis import call, connect

SOUND = {
    "version": 180_006, "version_text": "18.6", "fsync": True, "full_page_writes": True,
    "autovacuum": True, "in_recovery": False, "free_connections": 100,
}  # fmt: skip
REDIS = {
    "redis_version": "7.0.5", "role": "master", "maxmemory": 0, "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
}  # fmt: skip


def levels(said: Any) -> list[str]:
    return [level for level, *_ in said]


@pytest.mark.parametrize(
    ("changes", "wanted", "words"),
    [
        ({}, ["ok", "ok", "ok"], ""),
        ({"version": 140_010, "version_text": "14.10"}, ["bad", "ok", "ok"], "15 or newer"),
        ({"fsync": False}, ["ok", "bad", "ok"], "fsync is off"),
        ({"full_page_writes": False}, ["ok", "bad", "ok"], "full_page_writes is off"),
        ({"autovacuum": False}, ["ok", "ok", "warn", "ok"], "autovacuum is off"),
        ({"in_recovery": True}, ["ok", "bad", "ok", "ok"], "standby"),
        ({"free_connections": 15}, ["ok", "ok", "warn"], "15 connections are free"),
    ],
)
def test_what_is_wrong_with_a_database(
    changes: dict[str, Any], wanted: list[str], words: str
) -> None:
    row = SOUND | changes
    said = [*checkup._version(row), *checkup._durability(row), *checkup._room(row, 16)]
    assert levels(said) == wanted
    assert words in "".join(f"{text} {advice}" for level, text, advice in said if level != "ok")


HELD = {
    "live": 1_000, "dead": 2_000, "kind": "session", "name": "42", "owner": "bob, psql", "transactions": 20_000, "open_s": 5.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"kind": None, "name": None, "owner": None, "transactions": None, "open_s": 0.0}, []),
        ({"dead": 600_000}, ["600,000 dead rows"]),
        ({"dead": 600_000, "live": 20_000_000}, []),
        ({"open_s": 1_800.0}, ["session 42", "bob, psql", "30 min", "pg_terminate_backend(42)"]),
        ({"open_s": 1_800.0, "transactions": 5}, []),
        ({"kind": "prepared", "name": "x'{1}", "open_s": 900.0}, ["rollback prepared 'x''{1}'"]),
        ({"kind": "slot", "name": "s1", "transactions": 2_000_000, "open_s": 0.0}, ["s1", "drop"]),
        ({"kind": "standby", "transactions": 2_000_000, "open_s": 0.0}, ["hot_standby_feedback"]),
    ],
)
def test_what_holds_back_vacuum(changes: dict[str, Any], words: list[str]) -> None:
    said = list(checkup._vacuum(HELD | changes))
    assert levels(said) == ["warn"] * bool(words)
    assert all(word in str(said) for word in words)


@pytest.mark.parametrize(
    ("ahead_s", "wanted"), [(0.2, ["ok"]), (-0.2, ["ok"]), (5, ["warn"]), (-5, ["warn"])]
)
def test_a_clock_that_differs(ahead_s: float, wanted: list[str]) -> None:
    assert levels(checkup._clocks([(0.5, 99.0), (0.001, ahead_s)])) == wanted
    assert levels(checkup._clocks([(0.5, ahead_s)])) == ["warn", *wanted]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ["ok", "ok", "ok"]),
        ({"redis_version": "6.2.14"}, ["bad", "ok", "ok"]),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, ["ok", "ok", "ok"]),
        ({"role": "slave"}, ["ok", "bad", "ok", "ok"]),
        ({"maxmemory": 1000, "maxmemory_policy": "allkeys-lru"}, ["ok", "bad", "ok"]),
        ({"maxmemory_policy": "allkeys-lru"}, ["ok", "ok", "ok"]),
        ({"aof_enabled": 0}, ["ok", "ok", "warn"]),
    ],
)
def test_what_is_wrong_with_a_redis(changes: dict[str, Any], wanted: list[str]) -> None:
    info = REDIS | changes
    said = [*checkup._server(info), *checkup._memory(info), *checkup._persistence(info)]
    assert levels(said) == wanted


@pytest.mark.parametrize(
    ("run_ids", "wanted"),
    [
        (["a"], ["ok"]),
        ([None], ["bad"]),
        (["a", "b", "c"], ["ok"]),
        (["a", "b", None], ["ok"]),
        (["a", None, None], ["bad"]),
        (["a", "a", "b"], ["bad"]),
    ],
)
def test_a_majority_of_lease_servers(run_ids: list[str | None], wanted: list[str]) -> None:
    assert [one.level for one in checkup.leases(run_ids)] == wanted


async def test_a_database_before_at_and_after_this_schema(
    blank_database: str, fresh_database: str
) -> None:
    async def schema(url: str) -> Finding:
        found = await checkup.postgres(url, "db", 16, time.time)
        (about,) = (one for one in found if "migration" in one.said or "schema" in one.said)
        return about

    assert (await schema(blank_database)).level == "warn"
    assert (await schema(fresh_database)).level == "ok"
    async with opened(fresh_database) as db:
        await query(db, "insert into duly_migrations values (9999, '9999_x.sql', 'x')")
    newer = await schema(fresh_database)
    assert (newer.level, newer.advice) == ("bad", "upgrade duly")


async def test_a_transaction_that_is_left_open_is_told_by_its_session(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_OPEN_S", 0.0)
    monkeypatch.setattr(checkup, "_OLD", 0)
    async with opened(fresh_database) as db:

        async def look(connection: Any) -> tuple[int, list[Finding]]:
            async with connection.transaction(isolation="repeatable_read"):
                pid = await connection.fetchval(
                    "select pg_backend_pid() from tasks right join (select 1) as one on true"
                )
                return pid, await checkup.postgres(fresh_database, "db", 16, time.time)

        pid, found = await db.run(look)
    (held,) = [one for one in found if "holds back vacuum" in one.said]
    assert held.level == "warn"
    assert held.advice is not None
    assert f"pg_terminate_backend({pid})" in held.advice


async def test_whoever_has_written_is_told_before_who_sees_it_at_work(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ages in transactions are the same."""
    monkeypatch.setattr(checkup, "_OPEN_S", 0.0)
    monkeypatch.setattr(checkup, "_OLD", 0)
    async with opened(fresh_database) as first, opened(fresh_database) as second:
        await query(second, "select 1")  # so that it comes first where all sessions are listed

        async def write(connection: Any) -> tuple[int, list[Finding]]:
            async with connection.transaction():
                await connection.execute("create temporary table left_open (id int)")
                pid = await connection.fetchval("select pg_backend_pid()")
                return pid, await second.run(look)

        async def look(connection: Any) -> list[Finding]:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.execute("select from tasks limit 1")
                return await checkup.postgres(fresh_database, "db", 16, time.time)

        pid, found = await first.run(write)
    (held,) = [one for one in found if "holds back vacuum" in one.said]
    assert f"pg_terminate_backend({pid})" in str(held.advice)


async def test_servers_that_do_not_answer_are_bad(redis_url: str) -> None:
    (found,) = await checkup.postgres("postgresql://u:secret@127.0.0.1:1/d", "db", 16, time.time)
    assert found.level == "bad"
    assert "secret" not in str(found)
    (said,), run_id = await checkup.redis("redis://:secret@127.0.0.1:1/0", "Redis", streams=True)
    assert (said.level, run_id) == ("bad", None)
    assert "secret" not in str(said)
    _, first = await checkup.redis(redis_url, "Redis", streams=True)
    _, second = await checkup.redis(redis_url, "Redis", streams=False)
    assert first == second is not None


async def test_a_redis_that_evicts_and_forgets(tmp_path: Path) -> None:
    with several(tmp_path, 1) as (server,):
        client = connect(server.url, name="test")
        for words in (("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")):
            await call(client, "CONFIG", "SET", *words, timeout_s=30)
        await client.aclose()
        found, _ = await checkup.redis(server.url, "Redis", streams=True)
    assert [one.level for one in found] == ["ok", "bad", "warn"]
