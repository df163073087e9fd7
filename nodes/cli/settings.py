"""Settings as flags of a command."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from duly.nodes.cli.errors import fail
from duly.nodes.setting_reference import Reference, references
from duly.nodes.settings import Settings, SettingsError, load

T = TypeVar("T")


def flags(names: Sequence[str]) -> argparse.ArgumentParser:
    """A parent parser with these settings; checked later, with the environment and the file."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    group = parser.add_argument_group("settings", "Each is also a variable DULY_… and a name in "
                                      "the file. A flag wins over a variable, a variable over "
                                      "the file.")  # fmt: skip
    helps = _helps()
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


def _helps() -> dict[str, str]:
    return {one.name: _help(one) for one in references()}


def _help(one: Reference) -> str:
    """As plain text on one line, and safe to be a format."""
    unit = f" {one.unit}" if one.unit in ("s", "bytes") else ""
    text = f"{one.meaning.rstrip('.')} ({one.allowed}{unit}; default: {one.default})"
    return text.replace("`", "").replace("%", "%%").strip()
