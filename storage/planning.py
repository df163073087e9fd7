"""What a migration would do: its statements, and the lock that each takes.

By the documentation of PostgreSQL 14 to 18 ("Explicit Locking", ALTER TABLE, CREATE INDEX, CREATE TRIGGER); a test
compares it with the locks that a server shows.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_PIECE: Final = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "[^"]*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | ; | [^-'"$;]+ | .""",
    re.DOTALL | re.VERBOSE,
)

ACCESS_EXCLUSIVE: Final = "ACCESS EXCLUSIVE"
SHARE_ROW_EXCLUSIVE: Final = "SHARE ROW EXCLUSIVE"
SHARE_UPDATE_EXCLUSIVE: Final = "SHARE UPDATE EXCLUSIVE"
SHARE: Final = "SHARE"
ROW_EXCLUSIVE: Final = "ROW EXCLUSIVE"

_BLOCKS: Final = {
    ACCESS_EXCLUSIVE: "reads and writes of it wait",
    SHARE_ROW_EXCLUSIVE: "writes to it wait, reads go on",
    SHARE: "writes to it wait, reads go on",
    SHARE_UPDATE_EXCLUSIVE: "reads and writes go on; vacuum and other changes of the schema wait",
    ROW_EXCLUSIVE: "reads and writes go on, writes to the same rows wait",
}
_CATALOG: Final = "only the catalog changes"
_READS_ALL: Final = "reads the whole table"
_WRITES_ROWS: Final = "writes the rows that it names"
_INDEX: Final = re.compile(r"create (?:unique )?index (?P<index>\w+) on (?P<table>\w+)")
# A default that is constant is kept in the catalog; others would be written into every row.
_NEW_COLUMNS: Final = (
    r"alter table (?P<table>\w+) add column "
    r"(?!.*\b(?:generated|references|primary|check|unique)\b)(?!.*\bdefault [^,(]*\()"
)

# The first that fits, of the statement in lower case with single spaces: the lock on `table` (or on the table of
# `index`), and what is done under it. Without a lock, the statement touches no table that others know.
_KINDS: Final[tuple[tuple[re.Pattern[str], str | None, str], ...]] = tuple(
    (re.compile(pattern), lock, work)
    for pattern, lock, work in (
        (r"create (?:unlogged )?table (?P<new>\w+) partition of (?P<table>\w+)",
         ACCESS_EXCLUSIVE, _CATALOG),
        (r"create (?:unlogged )?table (?P<new>\w+)", None, "a new table"),
        (_INDEX.pattern, SHARE, _READS_ALL),
        (r"drop index (?P<index>\w+)$", ACCESS_EXCLUSIVE, _CATALOG),
        (r"alter table (?P<table>\w+) set \(autovacuum_", SHARE_UPDATE_EXCLUSIVE, _CATALOG),
        (r"alter table (?P<table>\w+) add constraint \w+ check", ACCESS_EXCLUSIVE, _READS_ALL),
        (_NEW_COLUMNS, ACCESS_EXCLUSIVE, _CATALOG),
        (r"alter table (?P<table>\w+) (?:drop constraint \w+|alter column \w+ drop not null)$",
         ACCESS_EXCLUSIVE, _CATALOG),
        (r"create (?:constraint )?trigger \w+ (?:after|before) .*?\bon (?P<table>\w+)",
         SHARE_ROW_EXCLUSIVE, _CATALOG),
        (r"(?:insert into|update|delete from) (?P<table>\w+)", ROW_EXCLUSIVE, _WRITES_ROWS),
        (r"(?:create (?:or replace )?|drop )function ", None, "a function"),
        (r"create sequence ", None, "a sequence"),
        (r"(?:revoke|grant) execute on function ", None, "a right"),
        (r"do \$", None, "code that sets up functions and schemas"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One statement of a migration, with the strongest lock that it takes on a table."""

    sql: str
    lock: str | None
    """As PostgreSQL calls it; None if it touches no table that others can see."""
    table: str | None
    says: str
    """The lock, on what, who waits, and for what work; for people."""


class UnknownStatementError(ValueError):
    """A statement whose locks are not known here."""


def statements(sql: str) -> list[str]:
    """The statements of a text, without its comments between them and without the final semicolons."""
    found = [""]
    for piece in _PIECE.finditer(sql):
        if piece[0] == ";":
            found.append("")
        elif not piece[0].startswith("--"):
            found[-1] += piece[0]
    return [text for one in found if (text := one.strip())]


def steps(missing: Iterable[str], before: Iterable[str] = ()) -> Iterator[list[Step]]:
    """The steps of each text of `missing`, which run in one transaction, after those of `before`.

    Raises `UnknownStatementError` for a statement of another kind than those that are known here.
    """
    missing = list(missing)
    tables = {
        match["index"]: match["table"]
        for sql in (*before, *missing)
        for one in statements(sql)
        if (match := _INDEX.match(_plain(one)))
    }
    new: set[str] = set()
    for sql in missing:
        yield [_step(one, tables, new) for one in statements(sql)]


def _step(sql: str, tables: dict[str, str], new: set[str]) -> Step:
    plain = _plain(sql)
    matches = ((pattern.match(plain), lock, work) for pattern, lock, work in _KINDS)
    match, lock, work = next((one for one in matches if one[0]), (None, None, ""))
    if match is None:
        raise UnknownStatementError(f"the locks of this are not known: {plain[:200]}")
    names = match.groupdict()
    if made := names.get("new"):
        new.add(made)
    if lock is None:
        return Step(sql, None, None, f"no lock that others wait for: {work}")
    table = names.get("table") or tables[names["index"]]
    who = "new, nobody waits for it" if table in new else _BLOCKS[lock]
    return Step(sql, lock, table, f"{lock} on {table}: {who}; {work}")


def _plain(sql: str) -> str:
    return " ".join(sql.lower().split())
