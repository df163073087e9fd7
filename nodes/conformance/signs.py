"""Workers that show that they live."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from duly.storage import keys
from duly.storage.redis import text

_SCAN: Final = 500

Call = Callable[..., Awaitable[Any]]
"""Runs a command of Redis."""


class Sign(NamedTuple):
    """A worker that shows that it lives."""

    id: str
    facts: dict[str, Any]
    """What its liveness key says; empty if that is no JSON object."""

    @property
    def concurrency(self) -> int:
        """How many attempts it says that it runs at a time; 1 if it does not say."""
        said = self.facts.get("concurrency")
        return said if isinstance(said, int) and said > 0 else 1


async def living(call: Call, queue: str) -> list[Sign]:
    """Every worker alive that takes tasks of this queue, or says nothing that can be read."""
    found = []
    for worker_id in sorted(await _alive(call)):
        raw = await call("GET", keys.worker(worker_id))
        facts = _object(raw)
        queues = facts.get("queues", [queue])
        if raw is not None and (not isinstance(queues, list) or queue in queues):
            found.append(Sign(worker_id, facts))
    return found


async def _alive(call: Call) -> set[str]:
    prefix = keys.worker("")
    found: set[str] = set()
    cursor: Any = b"0"
    while True:
        cursor, names = await call("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", _SCAN)
        found |= {text(name).removeprefix(prefix) for name in names}
        if int(cursor) == 0:
            return found


def _object(raw: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(raw or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
