"""What the kit dispatches: attempts of tasks whose types every worker that is tried must know."""

import json
import uuid
from typing import Any, Final, NamedTuple

from duly.storage import keys

ECHO: Final = "conformance.echo"
"""Type of a task that is completed with its payload as the result."""

SLEEP: Final = "conformance.sleep"
"""Type of a task that takes the payload's `seconds`, and ends early if it is told to stop."""

FAIL: Final = "conformance.fail"
"""Type of a task that fails."""


class Attempt(NamedTuple):
    """What was published."""

    id: str
    token: int
    entry_id: bytes


def dispatch(
    queue: str,
    task_type: str,
    payload: object = None,
    *,
    task_id: str | None = None,
    token: int = 7,
    inflight: str | None = None,
    **more: str,
) -> tuple[Attempt, list[list[Any]]]:
    """The commands that dispatch an attempt; `inflight`: what is in flight, "" = nothing."""
    task_id = task_id or str(uuid.uuid4())
    raw = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False)
    entry = {
        "id": task_id, "token": str(token), "type": task_type, "payload": raw,
        "due": "1790000000000.250", "attempt": "1", "timeout": "300.0", "queue": queue,
        "confirm": "0", **more,
    }  # fmt: skip
    words = [word for item in entry.items() for word in item]
    held = str(token) if inflight is None else inflight
    commands: list[list[Any]] = [["HSET", keys.inflight(queue), task_id, held]] if held else []
    commands.append(["XADD", keys.tasks(queue), "*", *words])
    return Attempt(task_id, token, b""), commands
