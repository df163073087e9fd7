"""Numbered migrations, applied in order, once, whichever node comes first.

All run in one transaction under an advisory lock: nodes that start together queue up, and a
migration that fails leaves nothing behind. A changed migration (checksum) is refused.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import asyncpg

from duly.storage.errors import MigrationError, StoreUnavailableError
from duly.storage.planning import Step, steps
from duly.storage.writer import Writer

_LOCK = 0x64756C79  # "duly"
_NAME = re.compile(r"^(\d{4})_\w+\.sql$")
_WAIT_FOR_OTHERS_S = 120
_CONNECT_TIMEOUT_S = 10.0
# All is made where the first migration was, whatever comes first in the search path by now: there is a
# schema `duly` (see the migration `submit`), and a user of that name has it before `public`.
_LOOK_THERE = (
    "select set_config('search_path', quote_ident(coalesce(("
    "  select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
    "  where c.relname = 'duly_migrations' and c.relkind = 'r'"
    "    and n.nspname = any (current_schemas(false))"
    "  order by array_position(current_schemas(false), n.nspname) limit 1"
    "), current_schema())), true)"
)
_KNOWN = "select version, name, checksum from duly_migrations"
_INTERRUPTED = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.LockNotAvailableError,
)


@dataclass(frozen=True)
class Migration:
    """One file of migrations/."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    """Every migration that this version brings, in order."""
    found = (
        Migration(int(match[1]), path.name, path.read_text())
        for path in files("duly.storage.migrations").iterdir()
        if (match := _NAME.match(path.name))
    )
    return sorted(found, key=lambda m: m.version)


async def migrate(dsn: str) -> list[str]:
    """Bring the schema to this version; answers the names of what was applied.

    Raises `MigrationError` for a schema that is newer or was changed, `StoreUnavailableError` when
    PostgreSQL cannot be reached, `RefusedError` when it does not let us in.
    """
    connection = await Writer(dsn).connect(_CONNECT_TIMEOUT_S, {"application_name": "duly migrate"})
    try:
        async with connection.transaction():
            return await _apply(connection)
    except _INTERRUPTED as error:
        raise StoreUnavailableError(f"the migration was interrupted: {error}") from error
    except asyncpg.PostgresError as error:
        raise MigrationError(f"PostgreSQL refuses the migration: {error}") from error
    finally:
        await connection.close(timeout=5)


async def plan(dsn: str) -> list[tuple[Migration, list[Step]]]:
    """What `migrate` would apply now, and the steps of each; changes nothing.

    Raises as `migrate` does.
    """
    connection = await Writer(dsn).connect(_CONNECT_TIMEOUT_S, {"application_name": "duly migrate"})
    try:
        async with connection.transaction(readonly=True):
            await connection.execute(_LOOK_THERE)
            made = await connection.fetchval("select to_regclass('duly_migrations') is not null")
            rows = await connection.fetch(_KNOWN) if made else []
    except _INTERRUPTED as error:
        raise StoreUnavailableError(f"the plan was interrupted: {error}") from error
    except asyncpg.PostgresError as error:
        raise MigrationError(f"PostgreSQL refuses to tell what is applied: {error}") from error
    finally:
        await connection.close(timeout=5)
    missing = _missing(rows)
    before = [m.sql for m in migrations() if m not in missing]
    return list(zip(missing, steps([m.sql for m in missing], before), strict=True))


async def _apply(connection: Any) -> list[str]:
    await connection.execute(f"set local lock_timeout = '{_WAIT_FOR_OTHERS_S}s'")
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute(_LOOK_THERE)
    await connection.execute(
        "create table if not exists duly_migrations ("
        " version integer primary key, name text not null, checksum text not null)"
    )
    missing = _missing(await connection.fetch(_KNOWN))
    for migration in missing:
        await connection.execute(migration.sql)
        await connection.execute(
            "insert into duly_migrations (version, name, checksum) values ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
    return [migration.name for migration in missing]


def _missing(rows: Iterable[Any]) -> list[Migration]:
    """Those of ours that are not among the applied; raises `MigrationError` if these are not ours."""
    known = {row["version"]: row for row in rows}
    ours = {m.version: m for m in migrations()}
    for version, row in known.items():
        if version not in ours:
            raise MigrationError(
                f"the database has migration {row['name']}, which this version does not know: "
                "upgrade duly"
            )
        if row["checksum"] != ours[version].checksum:
            raise MigrationError(f"migration {row['name']} is not the one that was applied")
    return [migration for version, migration in ours.items() if version not in known]
