"""Tasks of a cluster as a file that `duly apply` reads."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from duly.nodes import exact_json
from duly.nodes.api.definitions import FIELDS, differences
from duly.nodes.client.models import Task
from duly.nodes.declared.planning import seen_as
from duly.nodes.declared.reading import OWNER_TAG, read

_FOLLOW_UPS: Final = frozenset({"on_success", "on_failure"})
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_json: exact_json.ExactDecoder[Any] = exact_json.ExactDecoder()


class UnwritableError(Exception):
    """TOML has no null."""


def document(tasks: Sequence[Task], owner: str | None) -> dict[str, Any]:
    """The file's content: each task with the fields that are not the default, by name."""
    schedules = {}
    for task in sorted(tasks, key=lambda task: task.name or ""):
        assert task.name is not None
        schedules[task.name] = _fields(task)
    return {**({"owner": owner} if owner is not None else {}), "schedules": schedules}


def as_json(content: dict[str, Any]) -> str:
    """As JSON, indented."""
    return msgspec.json.format(exact_json.encode(content), indent=2).decode() + "\n"


def as_toml(content: dict[str, Any]) -> str:
    """As TOML. Raises `UnwritableError` that names what TOML cannot say."""
    lines = [f"owner = {_value(content['owner'], 'owner')}", ""] if "owner" in content else []
    for name, fields in content["schedules"].items():
        lines.append(f"[schedules.{_key(name)}]")
        lines += [f"{_key(k)} = {_value(v, f'schedules.{name}.{k}')}" for k, v in fields.items()]
        lines.append("")
    return "\n".join(lines)


def _fields(task: Task) -> dict[str, Any]:
    seen = seen_as(task)
    tags = {name: text for name, text in (task.tags or {}).items() if name != OWNER_TAG}
    seen.tags = msgspec.Raw(exact_json.encode(tags))
    plain = {"schedules": {"x": {"type": task.type, "schedule": task.schedule}}}
    usual = read(exact_json.encode(plain).decode(), is_json=True, now_us=0).tasks["x"].view
    wanted = {"type", "schedule", *differences(seen, usual)}
    fields = {name: getattr(seen, name) for name in FIELDS if name in wanted}
    said: dict[str, Any] = {
        name: _json.decode(bytes(value)) if isinstance(value, msgspec.Raw) else value
        for name, value in fields.items()
    }
    for name in _FOLLOW_UPS & said.keys():
        said[name] = _without_nulls(said[name])
    return said


def _without_nulls(follow_up: dict[str, Any]) -> dict[str, Any]:
    """Null is the default of whatever a follow-up may have as null."""
    return {
        name: _without_nulls(value) if name in _FOLLOW_UPS else value
        for name, value in follow_up.items()
        if value is not None
    }


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    # TOML's basic strings are those of JSON, but for one more character that has to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, path: str) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        raise UnwritableError(f"{path} holds null, which TOML cannot say: use --format json")
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(k)} = {_value(one, f'{path}.{k}')}" for k, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_value(one, f'{path}[{at}]') for at, one in enumerate(value))}]"
    return exact_json.encode(value).decode()
