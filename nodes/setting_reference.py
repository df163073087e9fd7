"""What is to be known of each setting, read off the settings themselves: for the help of flags and docs/settings.md."""

import ast
import inspect
import itertools
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from duly.nodes import settings
from duly.nodes.settings import Settings

_TYPES: Final = {bool: "yes or no", int: "whole number", float: "number"}
_UNITS: Final = {"_s": "s", "_bytes": "bytes"}


class Reference(NamedTuple):
    """One setting, in words."""

    name: str
    variable: str
    """Of the environment."""
    kind: str
    unit: str
    default: str
    """Markdown."""
    allowed: str
    """Markdown."""
    meaning: str
    """Markdown, one sentence or more; empty where the source is not at hand."""


def references() -> list[Reference]:
    """Every setting of a node, in their order."""
    types = get_type_hints(Settings, include_extras=True)
    meanings = docstrings(settings)
    return [
        _reference(field, types[field.name], meanings.get(field.name, ""))
        for field in msgspec.structs.fields(Settings)
    ]


def docstrings(module: ModuleType) -> dict[str, str]:
    """The docstring of each field of the module's class `Settings`, on one line; none where the source is not at hand."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except OSError:
        return {}
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings").body
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
        if isinstance(doc.value.value, str)
    }


def shown_default(field: Any) -> str | None:
    """The default, as Markdown; None where the field has none that says anything."""
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return f"`{value}`" if isinstance(value, str | int | float) else None


def _reference(field: Any, hint: Any, meaning: str) -> Reference:
    meta = next((part for part in get_args(hint) if isinstance(part, Meta)), None)
    extra = (meta and meta.extra) or {}
    base = get_args(hint)[0] if meta else hint
    unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
    return Reference(
        name=field.name,
        variable=f"DULY_{field.name.upper()}",
        kind=_kind(base),
        unit=unit or extra.get("unit", ""),
        default=shown_default(field) or extra.get("default", "none"),
        allowed=_allowed(base, meta),
        meaning=meaning,
    )


def _kind(base: Any) -> str:
    if get_origin(base) is Literal:
        return "word"
    return "list" if get_origin(base) is tuple else _TYPES.get(base, "text")


def _allowed(base: Any, meta: Meta | None) -> str:
    if base is bool:
        return "`true` or `false`"
    if meta is None:
        return ", ".join(f"`{one}`" for one in get_args(base))
    return meta.description or f"{meta.ge} to {meta.le}"
