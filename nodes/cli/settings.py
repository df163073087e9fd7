"""Settings as flags of a command."""

import argparse
import ast
import inspect
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from duly.nodes import settings
from duly.nodes.cli.errors import fail
from duly.nodes.settings import Settings, SettingsError, load

T = TypeVar("T")


def flags(names: Sequence[str]) -> argparse.ArgumentParser:
    """A parent parser with these settings; checked later, with the environment and the file."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    group = parser.add_argument_group("settings", "Each is also a variable DULY_… and a name in "
                                      "the file. A flag wins over a variable, a variable over "
                                      "the file.")  # fmt: skip
    helps = dict(_helps())
    for name in names:
        group.add_argument(
            "--" + name.replace("_", "-"), dest=name, metavar="VALUE", help=helps.get(name)
        )
    return parser


def read(args: argparse.Namespace) -> Settings:
    """Settings from flags, environment and file; ends the command if one is wrong."""
    given = {name: getattr(args, name, None) for name in Settings.__struct_fields__}
    try:
        return load(
            {name: value for name, value in given.items() if value is not None},
            os.environ,
            args.config,
        )
    except SettingsError as error:
        fail(str(error))


def need(name: str, value: T | None) -> T:
    """A setting that the command cannot do without; ends it if there is none."""
    if not value:
        fail(f"{name} is not set: give --{name.replace('_', '-')} or DULY_{name.upper()}")
    return value


def docs() -> dict[str, str]:
    """The docstring of each setting; empty where the source is not at hand."""
    try:
        tree = ast.parse(inspect.getsource(settings))
    except OSError:
        return {}
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings").body
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
        if isinstance(doc.value.value, str)
    }


def _helps() -> Iterator[tuple[str, str]]:
    known = docs()
    for field in msgspec.structs.fields(Settings):
        text = known.get(field.name, "").replace("`", "").rstrip(".")
        default = str(field.default).lower() if field.default is False else field.default
        if text and isinstance(default, str | int | float) and "default" not in text:
            text += (
                f" (default: {default:g})"
                if isinstance(default, float)
                else f" (default: {default})"
            )
        yield field.name, text.replace("%", "%%")
