"""What of a cluster has to change so that it is as declared."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from duly.nodes import exact_json
from duly.nodes.api.definitions import differences
from duly.nodes.api.replies import TaskView
from duly.nodes.client.models import Task
from duly.nodes.declared.reading import OWNER_TAG, Declared

Kind = Literal["add", "change", "replace", "delete", "keep"]

SIGNS: Final[dict[Kind, str]] = {
    "add": "+", "change": "~", "replace": "-/+", "delete": "-", "keep": "=",
}  # fmt: skip

_FIXED: Final = ("type", "queue", "on_lost", "region", "on_success", "on_failure")
"""Fields of a definition that a task keeps for life."""

_view = msgspec.json.Decoder(TaskView)
_ABSENT: Final = frozenset(
    field.name for field in msgspec.structs.fields(TaskView) if field.default is msgspec.UNSET
)
"""What the API leaves out where there is nothing to tell."""
_json: exact_json.ExactDecoder[Any] = exact_json.ExactDecoder()


class Step(NamedTuple):
    """What is to be done with one task."""

    kind: Kind
    name: str
    live: Task | None
    declared: Declared | None
    fields: tuple[tuple[str, Any, Any], ...] = ()
    """Each field that differs, as it is and as it is declared."""

    @property
    def changes(self) -> dict[str, Any]:
        """What a PATCH sets."""
        wanted = {field: new for field, _, new in self.fields}
        assert self.declared is not None
        if {"concurrency_key", "concurrency_limit"} & wanted.keys():
            new = self.declared.new
            wanted["concurrency_key"] = new.concurrency_key
            wanted.pop("concurrency_limit", None)
            if new.concurrency_key is not None:
                wanted["concurrency_limit"] = new.concurrency_limit
        return wanted


class UnwantedError(Exception):
    """The task belongs to another owner, or would have to be cancelled; neither was asked for."""


def step(declared: Declared, live: Task | None, owner: str | None, *, take_over: bool) -> Step:
    """What makes a task as it is declared. Raises `UnwantedError`."""
    if live is None:
        return Step("add", declared.name, None, declared)
    theirs = owner_of(live)
    if theirs is not None and theirs != owner and not take_over:
        raise UnwantedError(
            f"{declared.name} is applied by {theirs!r}; --take-over makes it that of this file"
        )
    seen = seen_as(live)
    changed = differences(declared.view, seen)
    fields = tuple((name, _shown(seen, name), _shown(declared.view, name)) for name in changed)
    if not fields:
        return Step("keep", declared.name, live, declared)
    fixed = live.schedule is None or any(name in _FIXED for name in changed)
    return Step("replace" if fixed else "change", declared.name, live, declared, fields)


def surplus(live: Sequence[Task], names: frozenset[str], owner: str) -> list[Step]:
    """What an owner has applied and does not declare any more."""
    return [
        Step("delete", task.name, task, None)
        for task in sorted(live, key=lambda task: task.name or "")
        if task.name is not None and task.name not in names
        and owner_of(task) == owner and task.finished_at is None
    ]  # fmt: skip


def owner_of(task: Task) -> str | None:
    """Who has applied a task."""
    return (task.tags or {}).get(OWNER_TAG)


def lines(one: Step) -> list[str]:
    """A step for people."""
    head = f"{SIGNS[one.kind]} {one.name}"
    if one.kind == "add" and one.declared is not None:
        text = one.declared.new.schedule or ""
        head += f"  {one.declared.new.type}  {text}"
    return [head, *(f"    {name}: {_text(old)} -> {_text(new)}" for name, old, new in one.fields)]


def seen_as(task: Task) -> TaskView:
    """A task that a client has got, as the API shows it."""
    fields = msgspec.structs.asdict(task)
    told = {name: value for name, value in fields.items() if value or name not in _ABSENT}
    return _view.decode(exact_json.encode(told))


def _shown(view: TaskView, field: str) -> Any:
    value = getattr(view, field)
    if value is msgspec.UNSET:
        return None
    return _json.decode(bytes(value)) if isinstance(value, msgspec.Raw) else value


def _text(value: Any) -> str:
    text = exact_json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
