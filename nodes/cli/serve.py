"""duly node, worker, migrate, effects-sql: what runs in production, and what it needs."""

import argparse
import asyncio
import importlib
import os
import sys
from typing import Any

from duly.nodes import tracing
from duly.nodes.cli import settings
from duly.nodes.cli.errors import fail
from duly.nodes.lifecycle import run_loop, run_node, settle_memory, stop_when_stdin_closes
from duly.nodes.logs import configure
from duly.nodes.server import ListenError
from duly.nodes.settings import Settings, SettingsError
from duly.nodes.tls import TlsError
from duly.nodes.worker import Worker
from duly.nodes.worker.effects import effects_sql
from duly.storage import stores
from duly.storage.errors import StoreError
from duly.storage.migrate import migrate, plan


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    node = commands.add_parser(
        "node",
        help="run a node",
        description="Run a node: the API, and the firing of tasks. Needs PostgreSQL "
        "(--database-url) and Redis (--redis-url); brings the schema up to date first.",
        parents=[settings.flags(Settings.__struct_fields__)],
    )
    node.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    node.set_defaults(run=run_node_command)

    worker = commands.add_parser(
        "worker",
        help="run a worker",
        description="Run a duly.Worker until SIGTERM or SIGINT, then let running tasks end; a "
        "second signal stops them. duly.contrib.http is one that sends HTTP requests.",
    )
    worker.add_argument("target", metavar="MODULE:NAME", help="a module, looked for in the current "
                        "folder first, and the name of the worker in it (default: worker)")  # fmt: skip
    worker.add_argument("--log-level", default="info",
                        choices=["debug", "info", "warning", "error"],
                        help="least severe log line written (default: %(default)s)")  # fmt: skip
    worker.add_argument("--log-format", default="text", choices=["text", "json"],
                        help="lines for people, or JSON objects (default: %(default)s)")  # fmt: skip
    worker.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    worker.set_defaults(run=run_worker_command)

    schema = commands.add_parser(
        "migrate",
        help="bring the database schema up to date",
        description="Bring the database schema up to date; safe while nodes run and start.",
        parents=[settings.flags(["database_url", "database_urls"])],
    )
    schema.add_argument("--plan", action="store_true", help="change nothing: print the statements "
                        "that are to come, each with the lock that it takes")  # fmt: skip
    schema.set_defaults(run=run_migrate_command)

    effects = commands.add_parser(
        "effects-sql",
        help="print the SQL of the table duly_effects",
        description="Print the SQL that creates the table duly_effects, in which "
        "ctx.exactly_once records effects: for the database that the effects are in.",
    )
    effects.set_defaults(run=run_effects_sql)


def run_node_command(args: argparse.Namespace) -> int:
    """duly node."""
    read = settings.read(args)
    settings.need("database_url", read.stores)
    settings.need("redis_url", read.redis_url)
    configure(read.log_level, read.log_format)
    tracing.configure("duly-node")
    if args.until_stdin_closes:
        stop_when_stdin_closes()
    try:
        return run_loop(lambda: run_node(read))
    except (ListenError, TlsError, StoreError) as error:
        fail(str(error), 1)


def run_worker_command(args: argparse.Namespace) -> int:
    """duly worker MODULE:NAME."""
    worker = _find_worker(args.target)
    configure(args.log_level, args.log_format)
    tracing.configure("duly-worker")
    if args.until_stdin_closes:
        stop_when_stdin_closes()
    settle_memory(5_000)
    worker.run()
    return 0


def _find_worker(target: str) -> Worker:
    module_name, _, name = target.partition(":")
    parts = module_name.split(".")
    if not all(part.isidentifier() for part in parts) or parts[-1] == "py":
        fail(f"{target!r} is not MODULE:NAME, such as tasks:worker for `worker` in tasks.py")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        worker = getattr(module, name or "worker", None)
    except ImportError as error:
        fail(f"cannot import {module_name!r}: {error}")
    except KeyError as error:
        if error.args != ("DULY_REDIS_URL",):
            raise
        fail("DULY_REDIS_URL is not set: the worker needs to know where Redis is")
    except SettingsError as error:
        fail(str(error))
    if not isinstance(worker, Worker):
        fail(f"{name or 'worker'!r} in {module_name!r} is not a duly.Worker")
    return worker


def run_migrate_command(args: argparse.Namespace) -> int:
    """duly migrate."""
    urls = settings.need("database_url", settings.read(args).stores)
    for at, url in enumerate(urls):
        try:
            said = asyncio.run(_planned(url) if args.plan else _applied(url))
        except StoreError as error:
            fail(str(error), 1)
        if len(urls) > 1:
            said = (
                f"-- {stores.name(url, at)}\n{said}"
                if args.plan
                else f"{stores.name(url, at)}: {said}"
            )
        print(said)
    return 0


async def _applied(url: str) -> str:
    lines = [f"applied {name}" for name in await migrate(url)]
    return "\n".join(lines) or "the schema is up to date"


async def _planned(url: str) -> str:
    planned = await plan(url)
    if not planned:
        return "-- the schema is up to date"
    lines = [
        "-- All of this is one transaction: each lock is held until its end. Whoever wants what a lock keeps",
        "-- from them waits, also while the migration itself waits for the lock (for 120 s at most).",
    ]
    for migration, made in planned:
        lines += ["", f"-- {migration.name}"]
        for step in made:
            lines += ["", f"-- {step.says}", f"{step.sql};"]
    return "\n".join(lines)


def run_effects_sql(args: argparse.Namespace) -> int:
    """duly effects-sql."""
    print(effects_sql(), end="")
    return 0
