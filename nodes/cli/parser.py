"""The command line: sub-commands and their options."""

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from typing import Final

from duly.nodes.cli.errors import CommandError

_MODULES: Final = {
    "up": ("up",),
    "demo": ("demo",),
    "env": ("env",),
    "serve": ("node", "worker", "migrate", "effects-sql"),
    "doctor": ("doctor",),
    "stores": ("store",),
    "submitting": ("submit",),
    "tasks": ("list", "alerts", "get", "cancel", "retry", "pause", "resume", "run-now", "runs"),
    "ledger": ("ledger",),
    "cluster": ("explain", "nodes", "workers"),
    "queues": ("queues", "queue"),
    "bulk": ("bulk",),
    "archive": ("archive",),
    "fire_times": ("next",),
    "importing": ("import",),
    "declared": ("apply", "export"),
    "simulating": ("simulate",),
    "conformance": ("conformance",),
    "tokens": ("token",),
}
"""Modules of this folder, and their commands. Only that of the command given is imported: all take half a second."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; answers the exit code. Raises SystemExit(2) for a wrong one."""
    words = sys.argv[1:] if argv is None else argv
    args = build(_modules_of(words)).parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except CommandError as error:
        print(f"duly: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `duly list | head`; nobody is there to be told
        sys.stderr.close()
        return 0
    return code


def build(modules: Iterable[str] = _MODULES) -> argparse.ArgumentParser:
    """The parser of the whole command, or of the commands of these modules."""
    parser = argparse.ArgumentParser(
        prog="duly",
        description="Every task, duly, once.",
        epilog="Exit codes: 0 done, 1 it did not work, 2 asked for wrongly, 70 a node gave up.",
    )
    parser.add_argument("--version", action="version", version=f"duly {version('duly')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in modules:
        import_module(f"duly.nodes.cli.{module}").add_to(commands)
    return parser


def _modules_of(words: list[str]) -> Iterable[str]:
    """That of the command; all, if it is not the first word: what is wrong is said of all of them."""
    found = [module for module, commands in _MODULES.items() if words[:1] and words[0] in commands]
    return found or _MODULES
