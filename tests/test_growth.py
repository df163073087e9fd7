"""docs/operations.md says of every table and every key in Redis what bounds it."""

import inspect
import re
from pathlib import Path

import asyncpg

from duly.storage import keys
from duly.storage.upkeep import BY_DAY

TEXT = (Path(__file__).parent.parent / "docs" / "operations.md").read_text()
SECTION = TEXT.split("## What grows, and what bounds it")[1].split("\n## ")[0]


def listed(heading: str) -> list[str]:
    """The names in the first column of the table that begins with `heading`."""
    table = SECTION.split(f"| {heading} | bounded by |\n|---|---|\n")[1].split("\n\n")[0]
    return [
        name for line in table.splitlines() for name in re.findall(r"`(.+?)`", line.split("|")[1])
    ]


def defined() -> tuple[set[str], set[str]]:
    """(keys, channels) of storage/keys.py: functions as `name(parameter)`."""
    functions = {
        name: value
        for name, value in vars(keys).items()
        if inspect.isfunction(value) and '"duly:' in inspect.getsource(value)
    }
    found = {
        f"{name}({', '.join(inspect.signature(value).parameters)})": value.__doc__ or ""
        for name, value in functions.items()
    }
    source = inspect.getsource(keys)
    found.update(re.findall(r'^([A-Z_]+) = "duly:.*"\n"""(.*)', source, re.MULTILINE))
    assert len(found) == len(re.findall(r'"duly:', source))
    channels = {name for name, doc in found.items() if doc.startswith("Pub/sub channel")}
    return set(found) - channels, channels


async def test_every_table_is_listed(template_url: str) -> None:
    connection = await asyncpg.connect(template_url)
    try:
        rows = await connection.fetch(
            "select relname, relkind from pg_class where relnamespace = 'public'::regnamespace"
            " and relkind = any(array['r', 'p']::\"char\"[]) and not relispartition"
        )
    finally:
        await connection.close()
    assert sorted(listed("table")) == sorted(row["relname"] for row in rows)
    assert {row["relname"] for row in rows if row["relkind"] == b"p"} == set(BY_DAY)


def test_every_key_is_listed() -> None:
    stored, channels = defined()
    assert sorted(listed("key in Redis")) == sorted(stored)
    (said,) = re.findall(r"Channels \((.*?)\)\s+keep nothing", SECTION, re.DOTALL)
    assert sorted(re.findall(r"`(.+?)`", said)) == sorted(channels)


def test_everything_that_is_kept_by_day_is_said_to_be() -> None:
    for name in BY_DAY:
        (line,) = [line for line in SECTION.splitlines() if f"`{name}`" in line and "|" in line]
        assert "by whole days" in line
