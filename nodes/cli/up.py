"""duly up: a complete Duly on this machine, from Python packages alone."""

import argparse
import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from duly.nodes.cli.children import ChildProcess
from duly.nodes.cli.errors import fail
from duly.nodes.embedded import EmbeddedError, EmbeddedServers, default_data_dir, keep_running
from duly.nodes.lifecycle import run_loop
from duly.nodes.logs import configure

_READY_S = 60.0


class Urls(NamedTuple):
    """Where everything is."""

    api: str
    database: str
    redis: str


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    up = commands.add_parser("up", help="run everything here: PostgreSQL, Valkey, nodes, a worker")
    add_options(up)
    up.set_defaults(run=run_up)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that up and demo share."""
    default = str(default_data_dir()).replace("%", "%%")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"data folder (default: {default})"
    )
    parser.add_argument("--port", type=int, default=8080, help="port of the API; 0 = any free one")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="run N node processes")
    parser.add_argument("--worker", metavar="MODULE:NAME", help="run this worker too")
    parser.add_argument("--log-level", default="warning",
                        choices=["debug", "info", "warning", "error"])  # fmt: skip


def run_up(args: argparse.Namespace) -> int:
    """duly up."""

    async def main() -> int:
        async with running(args, print) as (urls, failed):
            print(f"Ready. API {urls.api} - Ctrl-C stops everything.", flush=True)
            return await until_stopped(failed)

    return guarded(args, main)


def guarded(args: argparse.Namespace, main: Callable[[], Any]) -> int:
    """Run `main`; what the embedded servers say is wrong ends the command."""
    configure(args.log_level, "text")
    if args.nodes < 1:
        fail("--nodes must be at least 1")
    try:
        return run_loop(main)
    except EmbeddedError as error:
        fail(str(error), 1)


@asynccontextmanager
async def running(
    args: argparse.Namespace, say: Callable[[str], None]
) -> AsyncIterator[tuple[Urls, "asyncio.Task[Any]"]]:
    """Servers, nodes and a worker; everything is stopped at the end, in reverse."""
    data = (args.data or default_data_dir()).resolve()
    port = args.port or _free_port()
    if not is_free(port):
        fail(f"port {port} is in use: choose another with --port, or 0 for any", 1)
    async with EmbeddedServers(data, progress=say) as servers:
        urls = Urls(f"http://127.0.0.1:{port}", servers.database_url, servers.redis_url)
        environ = {
            "DULY_DATABASE_URL": urls.database, "DULY_REDIS_URL": urls.redis,
            "DULY_URL": urls.api, "DULY_API": urls.api, "DULY_LOG_LEVEL": args.log_level,
        }  # fmt: skip
        children = _children(args, port, environ)
        (data / "urls.json").unlink(missing_ok=True)
        watching: list[asyncio.Task[Any]] = []
        try:
            for child in children:
                say(f"starting {child.name}")
                await child.start()
            await _until_ready(urls.api, children)
            _write_urls(data / "urls.json", urls)
            watching = [asyncio.create_task(child.keep_running()) for child in children]
            watching.append(asyncio.create_task(keep_running(servers)))
            failed = asyncio.create_task(_first_failure(watching))
            watching.append(failed)
            yield urls, failed
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            (data / "urls.json").unlink(missing_ok=True)
            for child in reversed(children):
                await child.stop()


async def until_stopped(failed: "asyncio.Task[Any]") -> int:
    """Wait for SIGINT or SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopping, failed}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
    finally:
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
    print("Stopping ...", flush=True)
    return 0


async def _first_failure(watching: "list[asyncio.Task[Any]]") -> None:
    done, _ = await asyncio.wait(set(watching), return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _children(args: argparse.Namespace, port: int, environ: dict[str, str]) -> list[ChildProcess]:
    names = [f"node {number + 1}" for number in range(args.nodes)]
    children = [
        ChildProcess(name, ["node"], {**environ, "DULY_PORT": str(port if number == 0 else 0)})
        for number, name in enumerate(names)
    ]
    if args.worker:
        worker = ["worker", args.worker, "--log-level", args.log_level]
        children.append(ChildProcess(f"worker {args.worker}", worker, environ))
    return children


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


def _write_urls(path: Path, urls: Urls) -> None:
    """For scripts; only for the owner, since the URLs hold passwords. Whole or not at all."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(urls._asdict(), file)
    draft.rename(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """True if this port of the loopback interface can be taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
