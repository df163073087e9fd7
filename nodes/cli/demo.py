"""duly demo: up, with a worker and a stream of sample tasks, so that one sees it work."""

import argparse
import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.nodes.cli import up
from duly.nodes.client import Client, DulyError

_AHEAD_S = 3.0
_EVERY_S = 1.0


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    demo = commands.add_parser("demo", help="up, with a worker and sample tasks")
    up.add_options(demo)
    demo.add_argument("--count", type=int, metavar="N", help="stop after N tasks")
    demo.set_defaults(run=run_demo, worker="duly.nodes.cli.sample:worker")


def run_demo(args: argparse.Namespace) -> int:
    """duly demo."""

    async def main() -> int:
        args.port = args.port if args.port and up.is_free(args.port) else 0
        async with up.running(args, print) as (urls, failed):
            print(f"Ready. API {urls.api} - Ctrl-C stops everything.", flush=True)
            sending = asyncio.create_task(_send(urls.api, args.count))
            stopping = asyncio.create_task(up.until_stopped(failed))
            try:
                await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for task in (sending, stopping):
                    if task.done():
                        task.result()
            finally:
                for task in (sending, stopping):
                    task.cancel()
                await asyncio.gather(sending, stopping, return_exceptions=True)
        return 0

    return up.guarded(args, main)


async def _send(api: str, count: int | None) -> None:
    number = 0
    last = None
    async with Client(api) as client:
        while count is None or number < count:
            number += 1
            due = datetime.now(UTC) + timedelta(seconds=_AHEAD_S)
            try:
                last = await client.submit("demo.hello", {"number": number}, run_at=due)
                print(f"{_clock(datetime.now(UTC))}  submitted task {number}, due "
                      f"{_clock(due)} ({_AHEAD_S:g} s from now)", flush=True)  # fmt: skip
            except DulyError as error:
                print(f"could not submit: {error}", flush=True)
            await asyncio.sleep(_EVERY_S)
        while last is not None and not (await client.get(last.id)).finished_at:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _clock(instant: datetime) -> str:
    return instant.astimezone().strftime("%H:%M:%S.%f")[:-3]
