"""What PostgreSQL and Redis are set to, and what of it would break a promise of Duly: for `duly doctor`.

Nothing is changed. What each setting does to the promises is in docs/operations.md, "Durability".
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from duly.storage.database import Database
from duly.storage.errors import StoreError
from duly.storage.migrate import migrations
from duly.storage.redis import TROUBLE, call, connect
from duly.storage.writer import Writer

POSTGRES_MIN = 15
"""Oldest major version that Duly is tested with."""

REDIS_MIN = (7, 0)

_TIMEOUT_S = 5.0
_SAMPLES = 5
_CLOCK_S = 1.0
_SLOW_MS = 20.0
_DEAD_ROWS = 500_000  # a look for what is due steps over each: some 0.8 us
_OPEN_S = 600.0
_OLD = 10_000  # transactions; what has seen them come, statement by statement, holds back nothing
_VERY_OLD = 1_000_000

_NAME_CLUSTER = (
    "name the cluster by redis+cluster:// or rediss+cluster:// in redis_url, of nodes and of workers, "
    "and servers outside of it in lease_redis_urls"
)
_NO_CLUSTER = "name a server of its own in lease_redis_urls, outside of any cluster"

Level = Literal["ok", "warn", "bad"]


class Finding(NamedTuple):
    """One thing that was looked at. `bad`: nodes cannot work so, or a promise is broken; `warn`: it may hurt."""

    level: Level
    about: str
    said: str
    advice: str | None = None


async def postgres(url: str, about: str, pool: int, wall: Callable[[], float]) -> list[Finding]:
    """A database; `pool`: connections that each node may open; `wall`: this machine's clock, Unix time in s."""
    try:
        connection = await Writer(url).connect(_TIMEOUT_S, {"application_name": "duly doctor"})
    except StoreError as error:
        return [Finding("bad", about, str(error), "check the URL, the password and pg_hba.conf")]
    try:
        async with asyncio.timeout(_TIMEOUT_S), connection.transaction():
            row = await connection.fetchrow(Database.sql("checkup"))
            schema, vacuum = 0, None
            if row["has_schema"]:
                schema = await connection.fetchval(Database.sql("schema_version"))
                vacuum = await connection.fetchrow(Database.sql("vacuum_state"))
            clock = [await _clock(connection, wall) for _ in range(_SAMPLES)]
    except TimeoutError:
        return [Finding("bad", about, f"no answer within {_TIMEOUT_S:g} s")]
    finally:
        await connection.close(timeout=_TIMEOUT_S)
    found = [*_version(row), *_durability(row), *_room(row, pool), _schema(schema), *_clocks(clock)]
    found += [] if vacuum is None else _vacuum(vacuum)
    return [Finding(level, about, said, advice) for level, said, advice in found]


_Said = tuple[Level, str, str | None]


def _version(row: Any) -> Iterator[_Said]:
    major = row["version"] // 10_000
    if major < POSTGRES_MIN:
        yield "bad", f"PostgreSQL {row['version_text']}", f"upgrade to {POSTGRES_MIN} or newer"
    else:
        yield "ok", f"PostgreSQL {row['version_text']}", None


def _durability(row: Any) -> Iterator[_Said]:
    if row["in_recovery"]:
        yield (
            "bad",
            "it is a standby and takes no writes",
            "give the URL of the primary, or of all hosts",
        )
    if not row["fsync"]:
        yield (
            "bad",
            "fsync is off: a crash of the machine may lose the whole database",
            "set fsync = on",
        )
    if not row["full_page_writes"]:
        yield (
            "bad",
            "full_page_writes is off: a crash of the machine may tear pages",
            "set full_page_writes = on",
        )
    if row["fsync"] and row["full_page_writes"]:
        yield "ok", "what is committed is on disk", None
    if not row["autovacuum"]:
        yield (
            "warn",
            "autovacuum is off: tables and indexes grow without bound",
            "set autovacuum = on",
        )


def _room(row: Any, pool: int) -> Iterator[_Said]:
    free = row["free_connections"]
    if free < pool:
        yield (
            "warn",
            f"{max(0, free)} connections are free, and one more node may open {pool}",
            "raise max_connections, or lower db_pool_size and db_core_pool_size",
        )
    else:
        yield "ok", f"{free} connections are free, of which a node opens at most {pool}", None


def _schema(version: int) -> _Said:
    known = [one.version for one in migrations()]
    if version > known[-1]:
        return (
            "bad",
            f"its schema ({version:04}) is newer than this version of Duly",
            "upgrade duly",
        )
    left = sum(one > version for one in known)
    if left:
        return (
            "warn",
            f"{left} migrations are not applied yet",
            "run duly migrate; a node does so at its start",
        )
    return "ok", f"its schema is up to date ({version:04})", None


def _vacuum(row: Any) -> Iterator[_Said]:
    if row["dead"] >= _DEAD_ROWS and row["dead"] > row["live"]:
        yield (
            "warn",
            f"`tasks` has {row['dead']:,} dead rows: it takes longer to look for what is due",
            "end what holds back vacuum; where nothing does, lower autovacuum_naptime",
        )
    age = row["transactions"] or 0
    if age >= _VERY_OLD or (age >= _OLD and row["open_s"] >= _OPEN_S):
        what, advice = _HOLDERS[row["kind"]]
        quoted = {**row, "name": row["name"].replace("'", "''")}
        since = f"since {row['open_s'] / 60:.0f} min" if row["open_s"] else "since long"
        text = f"{what.format(**row)} holds back vacuum {since}: rows that went since stay"
        yield "warn", text, advice.format(**quoted)


_HOLDERS = {
    "session": (
        "a transaction of {owner} (session {name})",
        "select pg_terminate_backend({name}); and set idle_in_transaction_session_timeout",
    ),
    "prepared": (
        "the prepared transaction {name} of {owner}",
        "commit it or roll it back: rollback prepared '{name}'",
    ),
    "standby": (
        "the standby {owner} (session {name})",
        "see what runs there, or set hot_standby_feedback = off on it",
    ),
    "slot": (
        "the replication slot {name}",
        "see what its standby does; if that is gone for good, select pg_drop_replication_slot('{name}')",
    ),
}
"""What keeps a snapshot, and how to end that."""


async def _clock(connection: Any, wall: Callable[[], float]) -> tuple[float, float]:
    """The round trip, and by how much this machine's clock is ahead, both in seconds."""
    before = time.monotonic()
    server = await connection.fetchval(Database.sql("server_time"))
    took_s = time.monotonic() - before
    return took_s, wall() - took_s / 2 - server.timestamp()


def _clocks(samples: Sequence[tuple[float, float]]) -> Iterator[_Said]:
    took_s, ahead_s = min(samples)
    if took_s * 1000 > _SLOW_MS:
        yield "warn", f"a round trip takes {took_s * 1000:.1f} ms", "bring the nodes nearer to it"
    told = f"its clock differs from this machine's by {abs(ahead_s) * 1000:.0f} ms"
    if abs(ahead_s) > _CLOCK_S:
        yield "warn", told, "tasks are due by PostgreSQL's clock: see that it is the right one"
    else:
        yield "ok", told, None


async def redis(url: str, about: str, *, streams: bool) -> tuple[list[Finding], str | None]:
    """A server that a plain URL names; `streams`: not for leases alone.

    And its run id, by which one that is named twice is known; None if it cannot be used.
    """
    client = connect(url, name="duly-doctor")
    try:
        raw = await call(client, "INFO", timeout_s=_TIMEOUT_S)
        before = time.monotonic()
        await call(client, "PING", timeout_s=_TIMEOUT_S)
        took_ms = (time.monotonic() - before) * 1000
    except TROUBLE as error:
        return [
            Finding("bad", about, str(error) or "no answer", "check the URL and the password")
        ], None
    finally:
        await client.aclose()
    info: dict[str, Any] = raw
    found = server(info, took_ms, about, streams=streams)
    if is_inside_cluster(info):
        advice = _NAME_CLUSTER if streams else _NO_CLUSTER
        return [Finding("bad", about, "it is one of a Redis Cluster", advice), *found], None
    return found, str(info.get("run_id"))


def is_inside_cluster(info: dict[str, Any]) -> bool:
    """Whether a server runs in cluster mode, also one that has met no other yet."""
    return info.get("redis_mode") == "cluster" or str(info.get("cluster_enabled", 0)) == "1"


def server(info: dict[str, Any], took_ms: float, about: str, *, streams: bool) -> list[Finding]:
    """What `info` tells of a server, and the time of a round trip."""
    said = [*_server(info), *_memory(info), *(_persistence(info) if streams else [])]
    if took_ms > _SLOW_MS:
        said.append(
            ("warn", f"a round trip takes {took_ms:.1f} ms", "bring the nodes nearer to it")
        )
    return [Finding(level, about, text, advice) for level, text, advice in said]


def _server(info: dict[str, Any]) -> Iterator[_Said]:
    valkey = info.get("valkey_version")
    version = str(info["redis_version"])
    name = f"Valkey {valkey}" if valkey else f"Redis {version}"
    if tuple(int(part) for part in version.split(".")[:2]) < REDIS_MIN:
        yield "bad", name, "upgrade to 7.0 or newer"
    else:
        yield "ok", name, None
    if info.get("role") != "master":
        yield (
            "bad",
            "it is a replica and takes no writes",
            "give the URL of the master, or of Sentinel",
        )


def _memory(info: dict[str, Any]) -> Iterator[_Said]:
    if int(info.get("maxmemory", 0)) and info.get("maxmemory_policy") != "noeviction":
        yield (
            "bad",
            f"maxmemory-policy is {info.get('maxmemory_policy')}: leases and streams may vanish",
            "set maxmemory-policy noeviction",
        )
    else:
        yield "ok", "nothing is evicted", None


def _persistence(info: dict[str, Any]) -> Iterator[_Said]:
    if not int(info.get("aof_enabled", 0)):
        yield (
            "warn",
            "appendonly is off: a restart loses reports that were not read, and their tasks run again",
            "set appendonly yes, appendfsync everysec",
        )
    else:
        yield "ok", "a restart keeps the streams (appendonly)", None


def leases(run_ids: Sequence[str | None]) -> list[Finding]:
    """Whether the lease servers make a majority; `run_ids`: of each, None if it cannot be used."""
    about, count = "lease servers", len(run_ids)
    alive = [one for one in run_ids if one is not None]
    needed = count // 2 + 1
    found = []
    if len(set(alive)) < len(alive):
        found.append(Finding("bad", about, "one server is named twice: its loss may cost the majority",
                             "name each server once, on machines of their own"))  # fmt: skip
    if len(alive) < needed:
        found.append(Finding("bad", about, f"{len(alive)} of {count} can be used, {needed} have to",
                             "nodes fire nothing until a majority is there"))  # fmt: skip
    elif not found:
        found.append(Finding("ok", about, f"{len(alive)} of {count} can be used, {needed} have to"))
    return found
