"""duly up: a complete Duly on this machine, from Python packages alone."""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anyio

from duly.nodes.cli import values
from duly.nodes.cli.children import ChildProcess
from duly.nodes.cli.errors import CommandError, fail
from duly.nodes.cli.stopping import until_stopped
from duly.nodes.embedded import EmbeddedError, EmbeddedServers, default_data_dir, keep_running
from duly.nodes.embedded.folder import FolderLock
from duly.nodes.embedded.ports import choose, is_free
from duly.nodes.lifecycle import run_loop
from duly.nodes.logs import configure

_READY_S = 60.0
_PORT_S = 5.0


class Urls(NamedTuple):
    """Where everything is; the keys of `urls.json`."""

    api: str
    database: str
    redis: str


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    up = commands.add_parser(
        "up",
        help="run everything here: PostgreSQL, Valkey, nodes, a worker",
        description="Run everything on this machine, for development: PostgreSQL, a "
        "Redis-compatible server, nodes and a worker. Ctrl-C stops all of it, a second Ctrl-C "
        "without waiting for running tasks. Once ready, DIR/urls.json says where everything is.",
    )
    add_options(up)
    up.add_argument("--worker", metavar="MODULE:NAME", help="run this worker too, looked for "
                    "in the current folder; it finds Redis in DULY_REDIS_URL")  # fmt: skip
    up.set_defaults(run=run_up)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that up and demo share."""
    default = str(default_data_dir()).replace("%", "%%")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"data folder (default: DULY_HOME, else {default})"
    )
    parser.add_argument("--port", type=values.port, default=8080, metavar="PORT",
                        help="port of the API on 127.0.0.1, 0 for any free one "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--nodes", type=values.count, default=1, metavar="N",
                        help="node processes; the first has the API (default: 1)")  # fmt: skip
    parser.add_argument("--log-level", default="warning",
                        choices=["debug", "info", "warning", "error"],
                        help="least severe log line shown (default: %(default)s)")  # fmt: skip


def run_up(args: argparse.Namespace) -> int:
    """duly up."""

    async def work(hurry: asyncio.Event) -> int:
        async with running(args, _say, hurry) as urls:
            _say(f"Ready. API {urls.api} - Ctrl-C stops everything.")
            await anyio.sleep_forever()
        raise AssertionError("only a signal ends it")

    return guarded(args, work)


def guarded(
    args: argparse.Namespace, work: Callable[[asyncio.Event], Coroutine[Any, Any, int]]
) -> int:
    """Run `work` until a signal; what the embedded servers say is wrong ends the command."""
    configure(args.log_level, "text")
    try:
        return run_loop(lambda: until_stopped(work))
    except EmbeddedError as error:
        fail(str(error), 1)


@asynccontextmanager
async def running(
    args: argparse.Namespace, say: Callable[[str], None], hurry: asyncio.Event
) -> AsyncIterator[Urls]:
    """Everything runs, is looked after, and is stopped in the end; `say` is told of progress."""
    data: Path = args.data or default_data_dir()
    _enter(data)
    if args.port:
        await _wait_for_port(args.port, say)
    async with EmbeddedServers(data, progress=say) as servers:
        port = args.port or choose(data / "api.port")
        urls = Urls(f"http://127.0.0.1:{port}", servers.database_url, servers.redis_url)
        children = _children(args, port, urls)
        try:
            await _start(children, urls.api, say)
            _write_urls(data / "urls.json", urls)
            async with _kept_running(children, servers):
                yield urls
        finally:
            (data / "urls.json").unlink(missing_ok=True)
            for child in reversed(children):  # a worker before the nodes, which record its reports
                await child.stop(hurry)


def _say(line: str) -> None:
    print(line, flush=True)


def _enter(data: Path) -> None:
    """Refuse a folder in use, before anything else is said to be; forget what a killed run left."""
    if (data / "lock").exists():
        lock = FolderLock(data / "lock")
        lock.take()
        try:
            (data / "urls.json").unlink(missing_ok=True)
        finally:
            lock.release()


async def _wait_for_port(port: int, say: Callable[[str], None]) -> None:
    """The node of a run that was killed a moment ago needs that moment to stop."""
    deadline = asyncio.get_running_loop().time() + _PORT_S
    said = False
    while not is_free(port):
        if asyncio.get_running_loop().time() > deadline:
            fail(f"port {port} is in use: choose another with --port, or 0 for any", 1)
        if not said:
            say(f"port {port} is in use: waiting up to {_PORT_S:g} s for it")
            said = True
        await asyncio.sleep(0.05)


def _children(args: argparse.Namespace, port: int, urls: Urls) -> list[ChildProcess]:
    environ = {
        "DULY_DATABASE_URL": urls.database, "DULY_REDIS_URL": urls.redis, "DULY_URL": urls.api,
        "DULY_HOST": "127.0.0.1", "DULY_LEASE_REDIS_URLS": "", "DULY_LOG_LEVEL": args.log_level,
        "DULY_TLS_CERT": "", "DULY_TLS_KEY": "",
    }  # fmt: skip
    children = [
        ChildProcess(
            f"node {number + 1}", ["node"], {**environ, "DULY_PORT": str(0 if number else port)}
        )
        for number in range(args.nodes)
    ]
    if args.worker:
        worker = ["worker", args.worker, "--log-level", args.log_level]
        children.append(ChildProcess(f"worker {args.worker}", worker, environ))
    return children


async def _start(children: list[ChildProcess], api: str, say: Callable[[str], None]) -> None:
    """The first node and the worker; then, once that node has its slots, the other nodes."""
    nodes = [child for child in children if child.name.startswith("node")]
    first = [nodes[0], *(child for child in children if child not in nodes)]
    for some in (first, nodes[1:]):
        for child in some:
            say(f"starting {child.name}")
            await child.start()
        await _until_ready(api, children)


async def _until_ready(api: str, children: list[ChildProcess]) -> None:
    deadline = asyncio.get_running_loop().time() + _READY_S
    timeout = aiohttp.ClientTimeout(total=3)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            ended = next((c for c in children if c.exit_code is not None), None)
            if ended is not None:
                fail(f"{ended.name} ended with code {ended.exit_code}", 1)
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{api}/readyz") as answer:
                    if answer.status == 200:
                        return
            if asyncio.get_running_loop().time() > deadline:
                fail(f"the node is not ready after {_READY_S:g} s", 1)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _kept_running(
    children: list[ChildProcess], servers: EmbeddedServers
) -> AsyncIterator[None]:
    try:
        async with anyio.create_task_group() as keepers:
            for child in children:
                keepers.start_soon(child.keep_running)
            keepers.start_soon(keep_running, servers)
            yield
            keepers.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        known = group.subgroup(CommandError)
        if known is None:
            raise
        raise known.exceptions[0] from None


def _write_urls(path: Path, urls: Urls) -> None:
    """For scripts; only for the owner, since the URLs hold passwords. Whole or not at all."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(urls._asdict(), file)
    draft.rename(path)
