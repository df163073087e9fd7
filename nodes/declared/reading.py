"""A file of schedules, read and checked as a whole.

owner = "team-a"                       # optional: who applies it
[defaults]                             # optional: fields of all that do not have them
queue = "reports"
[schedules.nightly]                    # the name of a task; its fields are those of a submission
type = "report.nightly"
schedule = { cron = "0 3 * * *", timezone = "Europe/Berlin" }
expected_duration = "PT10M"            # only for `duly simulate`
"""

import json
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from duly.nodes import exact_json
from duly.nodes.api import bodies, views
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import FieldError, Problem
from duly.nodes.api.replies import TaskView
from duly.nodes.api.submissions import new_task
from duly.nodes.api.wire import TaskSubmission
from duly.storage.submitting import NewTask
from duly.wheel.durations import from_us

OWNER_TAG: Final = "applied-by"
"""The tag that says who applied a task."""

PAYLOAD_BYTES: Final = 256 * 1024
"""Largest payload that is taken, as by a node with default settings."""

_EXPECTED: Final = "expected_duration"
_TOP: Final = ("owner", "defaults", "schedules")
_NOT_HERE: Final = {
    "name": "is what the table is called", "id": "is chosen when it is applied",
    "run_at": "is for one-off tasks", "delay": "is for one-off tasks",
    "idempotency_key": "is not needed: its name is its key",
}  # fmt: skip

_json: exact_json.ExactDecoder[dict[str, Any]] = exact_json.ExactDecoder()
_submission = msgspec.json.Decoder(TaskSubmission)


class Declared(NamedTuple):
    """A periodic task as a file declares it."""

    name: str
    body: dict[str, Any]
    """Of its submission."""
    new: NewTask
    view: TaskView
    """As the API would show it if it were submitted now."""
    expected_s: float | None
    """How long a run is expected to take."""


class Declarations(NamedTuple):
    """What a file says."""

    owner: str | None
    tasks: dict[str, Declared]
    """By name, in the order of the file."""


class WrongFileError(Exception):
    """A file that cannot be taken; every wrong field is named."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(f"{one.field}: {one.message}" for one in errors))
        self.errors = errors


def read(text: str, *, is_json: bool, now_us: int, owner: str | None = None) -> Declarations:
    """Check a file. `owner`: instead of the file's own. Raises `WrongFileError`."""
    given = _parse(text, is_json=is_json)
    errors = [FieldError(key, "is not a known key") for key in given if key not in _TOP]
    tables = {key: given.get(key, {}) for key in ("defaults", "schedules")}
    for key, value in tables.items():
        if not isinstance(value, dict):
            raise WrongFileError(FieldError(key, "must be a table"))
    said = owner if owner is not None else given.get("owner")
    if said is not None and not (isinstance(said, str) and 1 <= len(said) <= 500):
        raise WrongFileError(FieldError("owner", "must be a text of 1 to 500 characters"))
    errors += _unfit("defaults", tables["defaults"])
    tasks: dict[str, Declared] = {}
    for name, fields in tables["schedules"].items():
        checker = Checker(f"schedules.{name}.")
        if not isinstance(fields, dict):
            checker.wrong("body", "must be a table")
        else:
            errors += _unfit(f"schedules.{name}", fields)
            declared = _declared(name, {**tables["defaults"], **fields}, said, now_us, checker)
            if declared is not None:
                tasks[name] = declared
        errors += checker.errors
    if errors:
        raise WrongFileError(*errors)
    return Declarations(said, tasks)


def _parse(text: str, *, is_json: bool) -> dict[str, Any]:
    try:
        if is_json:
            value = json.loads(text, parse_float=Decimal, object_pairs_hook=_object)
        else:
            value = _plain(tomllib.loads(text, parse_float=Decimal), "")
    except (ValueError, RecursionError) as error:
        kind = "JSON" if is_json else "TOML"
        raise WrongFileError(FieldError("file", f"is not {kind}: {error}")) from None
    if not isinstance(value, dict):
        raise WrongFileError(FieldError("file", "must be an object"))
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} is given twice in one object")
        found[name] = value
    return found


def _plain(value: Any, path: str) -> Any:
    """TOML as JSON has it: times as text."""
    if isinstance(value, dict):
        return {key: _plain(one, f"{path}.{key}" if path else key) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, f"{path}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat()
    if isinstance(value, datetime | date | time):
        raise WrongFileError(FieldError(path, "must be a time with date and offset, or a text"))
    return value


def _unfit(path: str, fields: Mapping[str, Any]) -> list[FieldError]:
    return [FieldError(f"{path}.{key}", said) for key, said in _NOT_HERE.items() if key in fields]


def _declared(
    name: str, fields: dict[str, Any], owner: str | None, now_us: int, checker: Checker
) -> Declared | None:
    expected = fields.pop(_EXPECTED, None)
    seconds = None
    if expected is not None:
        seconds = checker.duration(_EXPECTED, _number(expected))
    if fields.get("schedule") is None:
        checker.wrong("schedule", "is required")
    body = {key: value for key, value in fields.items() if key not in _NOT_HERE} | {"name": name}
    tags = body.get("tags")
    if isinstance(tags, dict) and OWNER_TAG in tags:
        checker.wrong(f"tags.{OWNER_TAG}", "is set by the owner of the file")
    if owner is not None and isinstance(tags, dict | None):
        body["tags"] = {**(tags or {}), OWNER_TAG: owner}
    try:
        raw = exact_json.encode(body)
        submission = _submission.decode(raw)
        new = new_task(submission, raw, checker, now_us, PAYLOAD_BYTES)
    except msgspec.ValidationError as error:
        found = bodies.field_error(error)
        checker.wrong(found.field, found.message)
    except Problem as problem:
        checker.errors += problem.errors
    except (TypeError, ValueError) as error:
        checker.wrong("body", str(error))
    else:
        if not checker.errors:
            view = views.submitted(new, 0, from_us(now_us))
            return Declared(name, _json.decode(raw), new, view, seconds)
    return None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
