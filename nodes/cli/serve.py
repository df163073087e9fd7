"""duly node, worker, migrate: what runs in production."""

import argparse
import asyncio
import importlib
import os
import sys
from typing import Any

from duly.nodes.cli.errors import fail
from duly.nodes.lifecycle import run_loop, run_node, stop_when_stdin_closes
from duly.nodes.logs import configure
from duly.nodes.settings import Settings, SettingsError, load
from duly.nodes.worker import Worker
from duly.storage.errors import StoreError
from duly.storage.migrate import migrate


def add_to(commands: Any, settings: argparse.ArgumentParser) -> None:
    """Add these sub-commands."""
    node = commands.add_parser("node", help="run a node", parents=[settings])
    node.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    node.set_defaults(run=run_node_command)

    worker = commands.add_parser("worker", help="run the worker MODULE:NAME")
    worker.add_argument("target", metavar="MODULE:NAME", help="a duly.Worker in a module")
    worker.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"]
    )
    worker.add_argument("--log-format", default="text", choices=["text", "json"])
    worker.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    worker.set_defaults(run=run_worker_command)

    schema = commands.add_parser("migrate", help="bring the database schema up to date",
                                 parents=[settings])  # fmt: skip
    schema.set_defaults(run=run_migrate_command)


def read_settings(args: argparse.Namespace) -> Settings:
    """Settings from flags, environment and file; ends the command if one is wrong."""
    given = {name: getattr(args, name) for name in Settings.__struct_fields__}
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return load(flags, os.environ, args.config)
    except SettingsError as error:
        fail(str(error))


def run_node_command(args: argparse.Namespace) -> int:
    """duly node."""
    settings = read_settings(args)
    for name in ("database_url", "redis_url"):
        if getattr(settings, name) is None:
            fail(f"{name} is not set: give --{name.replace('_', '-')} or DULY_{name.upper()}")
    configure(settings.log_level, settings.log_format)
    if args.until_stdin_closes:
        stop_when_stdin_closes()
    try:
        return run_loop(lambda: run_node(settings))
    except StoreError as error:
        fail(str(error))


def run_worker_command(args: argparse.Namespace) -> int:
    """duly worker MODULE:NAME."""
    module_name, _, name = args.target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        fail(f"cannot import {module_name!r}: {error}")
    worker = getattr(module, name or "worker", None)
    if not isinstance(worker, Worker):
        fail(f"{args.target!r} does not name a duly.Worker")
    configure(args.log_level, args.log_format)
    if args.until_stdin_closes:
        stop_when_stdin_closes()
    worker.run()
    return 0


def run_migrate_command(args: argparse.Namespace) -> int:
    """duly migrate."""
    settings = read_settings(args)
    if settings.database_url is None:
        fail("database_url is not set: give --database-url or DULY_DATABASE_URL")
    try:
        applied = asyncio.run(migrate(settings.database_url))
    except StoreError as error:
        fail(str(error))
    print("\n".join(f"applied {name}" for name in applied) or "the schema is up to date")
    return 0
