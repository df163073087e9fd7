"""How far a move of slots is, as the store says that the slots are moved from."""

from collections.abc import Mapping, Sequence
from typing import Any

from duly.storage.move_session import MoveError, MoveSession


async def state(source: MoveSession, slots: Sequence[int], to: int) -> str | None:
    """Of these slots on their way to store `to`; None: nothing has begun.

    Raises `MoveError` if they differ, are not here, or if others are on their way.
    """
    known = {row["slot"]: row for row in await source.fetch("move_states", slots)}
    held = await held_by(source)
    for slot, row in known.items():
        if slot not in slots or (row["state"] != "cleared" and row["to"] != to):
            raise MoveError(
                f"slot {slot} is on its way to store {row['to']}: finish that first, or undo it"
            )
    found = {_state(source, known, slot, held=slot in held) for slot in slots}
    if len(found) > 1 and not found <= {None, "copying"}:
        raise MoveError("these slots are not all as far: move each part as it was begun")
    return "copying" if "copying" in found else found.pop()


def _state(source: MoveSession, known: Mapping[int, Any], slot: int, *, held: bool) -> str | None:
    state: str | None = known[slot]["state"] if slot in known else None
    if state not in (None, "cleared"):
        return state
    if not held:
        raise MoveError(f"slot {slot} is not in {source.name}")
    return None


async def held_by(session: MoveSession) -> set[int]:
    """The slots that a store holds."""
    return {row["slot"] for row in await session.fetch("move_held")}
