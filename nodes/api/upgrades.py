"""What is not taken in yet while nodes of an older version run, which would drop a part of it."""

from collections.abc import Iterable
from typing import Final

from duly.actors import node_info
from duly.actors.context import Context
from duly.nodes.api.problems import unavailable
from duly.storage.redis import TROUBLE
from duly.storage.submitting import NewTask

# The first schema whose nodes know of follow-ups; older ones record an outcome and leave out what follows it. They
# cannot start any more once the schema is newer, so when none is left there is none until the end.
_FOLLOW_UPS: Final = 28
_NAMED: Final = 5
# A node that stood still may wake up and record what it reads. One that stops takes its leave first, and goes on to
# record while its API ends requests, which is half of its stop_grace_s: up to a minute of that is counted here.
_SILENT_S: Final = 60.0
_LEFT_S: Final = 30.0


async def check(context: Context, new: Iterable[NewTask]) -> None:
    """Raises `Problem` 503 for tasks with follow-ups, unless every node knows of these.

    The nodes are those of this node's last beat, and those that it has missed for a short time since: 30 s if they have
    taken their leave, else 60 s. Before its first beat it does not know any.
    """
    if not any(task.on_success or task.on_failure or task.after for task in new):
        return
    if context.node_id not in context.members.words:
        raise unavailable(
            "this node does not know yet whether all nodes know of follow-ups: Redis has not said"
        )
    if older := sorted(await _older(context)):
        named = ", ".join(older[:_NAMED]) + (", …" if len(older) > _NAMED else "")
        raise unavailable(
            "on_success, on_failure and after are taken once every node knows of them; "
            f"of an older version are, or were just now: {named}"
        )


async def _older(context: Context) -> list[str]:
    members = context.members
    found = [name for name, said in members.words.items() if _is_older(said)]
    for name, gone in list(members.vanished.items()):
        since_s = context.clock.monotonic() - gone.at
        if since_s >= _SILENT_S or not _is_older(gone.words):
            continue
        if since_s < _LEFT_S or await _has_not_left(context, name):
            found.append(name)
    return found


async def _has_not_left(context: Context, name: str) -> bool:
    try:
        return await context.members.silent_s(name) is not None
    except TROUBLE as error:
        raise unavailable(f"Redis does not say whether node {name} is gone: {error}") from None


def _is_older(said: bytes) -> bool:
    return node_info.schema_of(said) < _FOLLOW_UPS
