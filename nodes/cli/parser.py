"""The command line: sub-commands and their options."""

import argparse
import sys
from importlib.metadata import version

from duly.nodes.cli import (
    archive,
    bulk,
    cluster,
    conformance,
    declared,
    demo,
    doctor,
    env,
    fire_times,
    importing,
    ledger,
    queues,
    serve,
    simulating,
    stores,
    submitting,
    tasks,
    tokens,
    up,
)
from duly.nodes.cli.errors import CommandError


def main(argv: list[str] | None = None) -> int:
    """Run the command line; answers the exit code. Raises SystemExit(2) for a wrong one."""
    args = build().parse_args(argv)
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


def build() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(
        prog="duly",
        description="Every task, duly, once.",
        epilog="Exit codes: 0 done, 1 it did not work, 2 asked for wrongly, 70 a node gave up.",
    )
    parser.add_argument("--version", action="version", version=f"duly {version('duly')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for part in (
        up,
        demo,
        env,
        serve,
        doctor,
        stores,
        submitting,
        tasks,
        ledger,
        cluster,
        queues,
        bulk,
        archive,
        fire_times,
        importing,
        declared,
        simulating,
        conformance,
        tokens,
    ):
        part.add_to(commands)
    return parser
