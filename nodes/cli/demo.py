"""duly demo: up, with a worker and a stream of sample tasks, so that one sees it work."""

import argparse
import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.nodes.cli import up, values
from duly.nodes.client import Client, DulyError
from duly.nodes.embedded.ports import is_free

_AHEAD_S = 3.0
_EVERY_S = 1.0
_POLL_S = 0.05


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    demo = commands.add_parser(
        "demo",
        help="up, with a worker and sample tasks",
        description="Like duly up, with a worker of its own and a new task every second, due "
        "3 s later. Takes another port if the one asked for is in use.",
    )
    up.add_options(demo)
    demo.add_argument(
        "--count",
        type=values.count,
        metavar="N",
        help="stop once N tasks have run (default: go on)",
    )
    demo.set_defaults(run=run_demo, worker="duly.nodes.cli.sample:worker")


def run_demo(args: argparse.Namespace) -> int:
    """duly demo."""

    async def work(hurry: asyncio.Event) -> int:
        args.port = args.port if args.port and is_free(args.port) else 0
        async with up.running(args, _say, hurry) as urls:
            _say(f"Ready. API {urls.api} - Ctrl-C stops everything.")
            async with Client(urls.api, os.environ.get("DULY_TOKEN")) as client:
                await _send(client, args.count)
        return 0

    return up.guarded(args, work)


async def _send(client: Client, count: int | None) -> None:
    number = 0
    open_ids = set()
    while count is None or number < count:
        number += 1
        due = datetime.now(UTC) + timedelta(seconds=_AHEAD_S)
        try:
            task = await client.submit("demo.hello", {"number": number}, run_at=due)
        except DulyError as error:
            _say(f"could not submit task {number}: {error}")
        else:
            if count is not None:
                open_ids.add(task.id)
            _say(f"{_clock(datetime.now(UTC))}  submitted task {number}, due {_clock(due)} "
                 f"({_AHEAD_S:g} s from now)")  # fmt: skip
        await asyncio.sleep(_EVERY_S)
    while open_ids:
        try:
            open_ids = {i for i in open_ids if not (await client.get(i)).finished_at}
        except DulyError as error:
            _say(f"could not ask for a task: {error}")
        await asyncio.sleep(_POLL_S)


def _say(line: str) -> None:
    print(line, flush=True)


def _clock(instant: datetime) -> str:
    return instant.astimezone().strftime("%H:%M:%S.%f")[:-3]
