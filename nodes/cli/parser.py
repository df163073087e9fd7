"""The command line: sub-commands and their options."""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from duly.nodes.cli import demo, serve, tasks, up
from duly.nodes.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Run the command line; answers the exit code."""
    parser = build()
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code


def build() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(prog="duly", description="Every task, duly, once.")
    parser.add_argument("--version", action="version", version=f"duly {version('duly')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve.add_to(commands, _setting_flags())
    up.add_to(commands)
    demo.add_to(commands)
    tasks.add_to(commands)
    return parser


def _setting_flags() -> argparse.ArgumentParser:
    """Every setting as a flag; checked later, with the environment and the file."""
    flags = argparse.ArgumentParser(add_help=False)
    flags.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    group = flags.add_argument_group("settings (also DULY_* variables; see docs/settings.md)")
    for name in Settings.__struct_fields__:
        group.add_argument("--" + name.replace("_", "-"), dest=name, metavar="VALUE")
    return flags
