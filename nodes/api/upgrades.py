"""What is not taken in yet while nodes of an older version run, which would drop a part of it."""

from collections.abc import Iterable
from typing import Final

from duly.actors import node_info
from duly.actors.context import Context
from duly.nodes.api.problems import unavailable
from duly.storage.submitting import NewTask

# The first schema whose nodes know of follow-ups; older ones record an outcome and leave out what follows it. They
# cannot start any more once the schema is newer, so when none is left there is none until the end.
_FOLLOW_UPS: Final = 28
_NAMED: Final = 5


def check(context: Context, new: Iterable[NewTask]) -> None:
    """Raises `Problem` 503 for tasks with follow-ups, unless every live node knows of these.

    The live nodes are those of this node's last beat; before its first one it does not know them.
    """
    if not any(task.on_success or task.on_failure or task.after for task in new):
        return
    words = context.members.words
    if context.node_id not in words:
        raise unavailable(
            "this node does not know yet whether all nodes know of follow-ups: Redis has not said"
        )
    older = sorted(name for name, said in words.items() if node_info.schema_of(said) < _FOLLOW_UPS)
    if older:
        named = ", ".join(older[:_NAMED]) + (", …" if len(older) > _NAMED else "")
        raise unavailable(
            "on_success, on_failure and after are taken once every node knows of them; "
            f"of an older version are: {named}"
        )
