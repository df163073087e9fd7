"""What the OpenAPI document says of parameters, by name; they are checked by hand (queries)."""

from collections.abc import Mapping
from typing import Any, Final

from duly.actors.meters.minutes import KEPT
from duly.nodes.api.load import HOURS_MAX
from duly.nodes.api.queries import LIMIT, LIMIT_MAX
from duly.nodes.api.wire import KEY_MAX
from duly.storage.keys import QUEUE_NAME
from duly.wheel.preview import COUNT_MAX

_TEXT: Final = {"type": "string"}
_ID: Final = {"type": "string", "format": "uuid"}
_TIME: Final = {"type": "string", "format": "date-time"}
_YES_NO: Final = {"type": "boolean"}


def _whole(most: int, **more: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, **more}


_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "id": _ID,
    "task_id": _ID,
    "status": {"enum": ["pending", "running", "completed", "failed", "cancelled"]},
    "tag": {"type": "string", "pattern": "^[^:]+:"},
    "due_before": _TIME,
    "due_after": _TIME,
    "since": _TIME,
    "until": _TIME,
    "before": _TIME,
    "after": _TIME,
    "start_at": _TIME,
    "periodic": _YES_NO,
    "paused": _YES_NO,
    "open": _YES_NO,
    "state": {"enum": ["waiting", "refused"]},
    "by": {"enum": ["queue", "type"]},
    "limit": _whole(LIMIT_MAX, default=LIMIT),
    "hours": _whole(HOURS_MAX),
    "minutes": _whole(KEPT - 1),
    "count": _whole(COUNT_MAX),
    "cursor": {"type": "string", "minLength": 1},
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": KEY_MAX},
    "If-Match": {"type": "string", "pattern": r'^(\*|(W/)?"[0-9]{1,18}"|[0-9]{1,18})$'},
}
"""Those that are not just text."""

_IN_PATH: Final[Mapping[str, Mapping[str, Any]]] = {
    "queue": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": f"^{QUEUE_NAME}$"},
    "name": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": f"^{QUEUE_NAME}$"},
}


def parameter(name: str, where: str = "query") -> dict[str, Any]:
    """A parameter; those in the path are required."""
    known = _IN_PATH if where == "path" and name in _IN_PATH else _SCHEMAS
    schema = dict(known.get(name, _TEXT))
    return {"name": name, "in": where, "required": where == "path", "schema": schema}
