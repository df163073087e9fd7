"""Lets the store note every claim, with the slot's owner at that very moment."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

_STATEMENTS = (
    "create table claims_seen (task_id uuid, slot int, owner text, slot_owner text, epoch bigint)",
    """create function see_claim() returns trigger language plpgsql as $$
    begin
        insert into claims_seen
            select new.id, new.slot, new.owner, s.owner, s.epoch from slots s where s.slot = new.slot;
        return null;
    end $$""",
    """create trigger see_claim after update of status on tasks for each row
    when (new.status = 'running') execute function see_claim()""",
)

Query = Callable[[str], Awaitable[list[Any]]]


class Claims(NamedTuple):
    """What was claimed: how often, how many tasks, by which nodes; and by a wrong one."""

    times: int
    tasks: int
    owners: set[str]
    wrong: list[Any]


async def watch_claims(query: Query) -> None:
    """Begin, before anything is claimed."""
    for statement in _STATEMENTS:
        await query(statement)


async def claims_seen(query: Query) -> Claims:
    """What was claimed since then. The claim holds the slot's row: its owner is exact."""
    rows = await query("select * from claims_seen")
    return Claims(
        len(rows),
        len({row["task_id"] for row in rows}),
        {row["owner"] for row in rows},
        [row for row in rows if row["owner"] != row["slot_owner"]],
    )
