"""What a request says outside its body: ids, query strings, If-Match. Each value is checked."""

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from aiohttp import web

from duly.nodes.api import json_guard
from duly.nodes.api.problems import FieldError, invalid
from duly.storage import audit, ledger
from duly.storage.listing import Filter
from duly.wheel.durations import parse_time

LIMIT_MAX = 1000
LIMIT = 50
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_VERSION = re.compile(r'(?:W/)?"([0-9]{1,18})"|([0-9]{1,18})', re.ASCII)
_STATUSES = ("pending", "running", "completed", "failed", "cancelled")


def task_id(request: web.Request) -> UUID:
    """The id in the path."""
    text = request.match_info["id"]
    if not _UUID.fullmatch(text):
        raise invalid(FieldError("id", "is not a UUID"))
    return UUID(text)


def task_name(request: web.Request) -> str:
    """The name in the path."""
    name = request.match_info["name"]
    _check_text("name", name)
    return name


def if_match(request: web.Request) -> int | None:
    """The version that a change asks for, None if any will do."""
    text = request.headers.get("If-Match", "*").strip()
    if text == "*":
        return None
    found = _VERSION.fullmatch(text)
    if found is None:
        raise invalid(FieldError("If-Match", 'must be a version in quotes, like "3"'))
    return int(found[1] or found[2])


def known_only(request: web.Request, names: Collection[str]) -> None:
    """Raise `Problem` 422 for a parameter that is unknown or given twice."""
    for name in request.query:
        if name not in names:
            raise invalid(FieldError(name, "is not a known parameter"))
        if len(request.query.getall(name)) > 1:
            raise invalid(FieldError(name, "is given more than once"))


def limit(request: web.Request) -> int:
    """How many items a page may have: 1 to 1000, default 50."""
    return whole(request, "limit", LIMIT, LIMIT_MAX)


def whole(request: web.Request, name: str, default: int, most: int) -> int:
    """A parameter that is a number from 1 to `most`."""
    text = request.query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise invalid(FieldError(name, f"must be a number from 1 to {most}"))
    return int(text)


TASK_FILTER = (
    "id", "status", "type", "queue", "tag", "due_before", "due_after", "periodic", "paused", "name",
)  # fmt: skip
"""The parameters of `task_filter`."""


def task_filter(query: Mapping[str, str]) -> Filter:
    """The filter of a list of tasks, from its parameters."""
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise invalid(FieldError("status", f"must be one of {', '.join(_STATUSES)}"))
    for name in ("type", "queue", "tag", "name"):
        _check_text(name, query.get(name, ""))
    tag = query.get("tag")
    if tag is not None:
        name, colon, value = tag.partition(":")
        if not name or not colon:
            raise invalid(FieldError("tag", "must be name:value"))
        tag = msgspec.json.encode({name: value}).decode()
    return Filter(
        id=uuid(query, "id"), status=status, type=query.get("type"), queue=query.get("queue"), tag=tag,
        due_before=instant(query, "due_before"), due_after=instant(query, "due_after"),
        periodic=flag(query, "periodic"), paused=flag(query, "paused"),
        name=query.get("name"),
    )  # fmt: skip


def text(request: web.Request, name: str) -> str | None:
    """A parameter that is any text; None if it is not given."""
    value = request.query.get(name)
    _check_text(name, value or "")
    return value


def _check_text(name: str, text: str) -> None:
    if "\0" in text or (not text.isascii() and json_guard.has_surrogate(text)):
        raise invalid(FieldError(name, "holds a character that PostgreSQL cannot store"))


def instant(query: Mapping[str, str], name: str) -> datetime | None:
    """A parameter that is a time; None if it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError as error:
        raise invalid(FieldError(name, str(error))) from None


def encode_cursor(*parts: object) -> str:
    """An opaque place in a list."""
    return base64.urlsafe_b64encode("|".join(map(str, parts)).encode()).decode().rstrip("=")


def task_cursor(request: web.Request) -> UUID | None:
    """The id after which a list of tasks goes on."""
    parts = _cursor(request, 1)
    if parts is None:
        return None
    if not _UUID.fullmatch(parts[0]):
        raise _bad_cursor()
    return UUID(parts[0])


def queue_cursor(request: web.Request) -> str | None:
    """The name after which a list of queues goes on."""
    parts = _cursor(request, 1)
    if parts == [""]:
        raise _bad_cursor()
    return None if parts is None else parts[0]


def run_cursor(request: web.Request) -> tuple[int, datetime] | None:
    """The (token, recorded_at) after which a list of runs goes on."""
    return _number_and_time(request)


def audit_filter(request: web.Request) -> audit.Filter:
    """The filter of the audit log."""
    query = request.query
    for name in ("who", "action"):
        _check_text(name, query.get(name, ""))
    return audit.Filter(
        query.get("who"), query.get("action"), uuid(query, "task_id"),
        instant(query, "before"), instant(query, "since"),
    )  # fmt: skip


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """A parameter that is `true` or `false`; None if it is not given."""
    text = query.get(name)
    if text not in (None, "true", "false"):
        raise invalid(FieldError(name, "must be true or false"))
    return None if text is None else text == "true"


def uuid(query: Mapping[str, str], name: str) -> UUID | None:
    """A parameter that is a UUID; None if it is not given."""
    text = query.get(name)
    if text is not None and not _UUID.fullmatch(text):
        raise invalid(FieldError(name, "is not a UUID"))
    return None if text is None else UUID(text)


def alert_cursor(request: web.Request) -> int | None:
    """The id after which a list of alerts goes on."""
    parts = _cursor(request, 1)
    if parts is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", parts[0], re.ASCII):
        raise _bad_cursor()
    return int(parts[0])


def audit_cursor(request: web.Request) -> tuple[datetime, int] | None:
    """The (at, id) after which the audit log goes on."""
    place = _number_and_time(request)
    return place and (place[1], place[0])


def ledger_filter(request: web.Request) -> ledger.Filter:
    """The filter of the ledger."""
    query = request.query
    for name in ("type", "queue"):
        _check_text(name, query.get(name, ""))
    verdict, reason = query.get("verdict"), query.get("reason")
    _check_one_of("verdict", verdict, (*ledger.VERDICTS, "rejected"))
    _check_one_of("reason", reason, ledger.REASONS)
    if reason is not None and verdict not in (None, "skipped"):
        raise invalid(FieldError("reason", "goes with the verdict skipped"))
    since = instant(request.query, "since") or datetime(1970, 1, 1, tzinfo=UTC)
    return ledger.Filter(since, query.get("type"), query.get("queue"), verdict, reason)


def _check_one_of(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise invalid(FieldError(name, f"must be one of {', '.join(known)}"))


def ledger_place(request: web.Request) -> ledger.Place:
    """Where the ledger goes on: after a cursor, else before `until`, else at its end."""
    until = instant(request.query, "until") or datetime(3000, 1, 1, tzinfo=UTC)
    parts = _cursor(request, 3)
    if parts is None:
        return ledger.Place(until, UUID(int=0), -1)
    number, at = _as_number_and_time(parts[2], parts[0])
    if not _UUID.fullmatch(parts[1]):
        raise _bad_cursor()
    return ledger.Place(at, UUID(parts[1]), number)


def time_and_id_cursor(request: web.Request) -> tuple[datetime, UUID] | None:
    """The (time, id) after which a list goes on."""
    parts = _cursor(request, 2)
    if parts is None:
        return None
    try:
        at = parse_time(parts[0])
    except ValueError:
        raise _bad_cursor() from None
    if not _UUID.fullmatch(parts[1]):
        raise _bad_cursor()
    return at, UUID(parts[1])


def _number_and_time(request: web.Request) -> tuple[int, datetime] | None:
    parts = _cursor(request, 2)
    return None if parts is None else _as_number_and_time(*parts)


def _as_number_and_time(text: str, time: str) -> tuple[int, datetime]:
    try:
        number, at = int(text[:20]), parse_time(time)
    except ValueError:
        raise _bad_cursor() from None
    if not 0 <= number < 1 << 63:
        raise _bad_cursor()
    return number, at


def _cursor(request: web.Request, count: int) -> list[str] | None:
    text = request.query.get("cursor")
    if text is None:
        return None
    try:
        parts = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split("|")
    except (binascii.Error, ValueError):
        raise _bad_cursor() from None
    if len(parts) != count:
        raise _bad_cursor()
    return parts


def _bad_cursor() -> Exception:
    return invalid(FieldError("cursor", "is not one that a list returned"))
