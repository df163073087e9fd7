"""Moves of slots, as the command makes them, without its words."""

from collections.abc import Sequence

import asyncpg

from duly.storage import moving
from duly.storage.move_session import MoveSession
from duly.storage.moving import Moved

SETTLE_S = 1.0


class QuietNodes:
    """Nodes that are as they should be, and notice by themselves what has moved."""

    async def ready(self) -> None:
        """They work on every store."""

    async def tell(self) -> None:
        """They look within a second."""


def ends(urls: Sequence[str], source: int, to: int) -> tuple[MoveSession, MoveSession]:
    """The two stores of a move."""
    return MoveSession(urls[source], source), MoveSession(urls[to], to)


async def move(
    urls: Sequence[str],
    slots: Sequence[int],
    source: int = 0,
    to: int = 1,
    *,
    settle_s: float = SETTLE_S,
    patience_s: float = 60.0,
) -> Moved:
    """Move slots from one store to another."""
    both = ends(urls, source, to)
    return await moving.move(*both, slots, settle_s, QuietNodes(), patience_s)


async def undo(urls: Sequence[str], slots: Sequence[int], source: int = 0, to: int = 1) -> bool:
    """Give a move up that was broken off."""
    return await moving.undo(*ends(urls, source, to), slots, QuietNodes())


async def left(url: str, slots: Sequence[int]) -> int:
    """How many rows a store has of tasks and keys of these slots."""
    connection = await asyncpg.connect(url)
    try:
        number: int = await connection.fetchval(
            "select (select count(*) from tasks where slot = any($1)) + (select count(*) from finished_tasks"
            " where slot = any($1)) + (select count(*) from idempotency_keys"
            " where duly_slot_of_key(key) = any($1))"
            " + (select count(*) from runs where get_byte(sha256(uuid_send(task_id)), 0) = any($1))",
            list(slots),
        )
        return number
    finally:
        await connection.close()
