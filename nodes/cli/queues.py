"""duly queues, queue: what is set of queues, and setting it."""

import argparse
from datetime import datetime
from typing import Any

from duly.nodes import exact_json
from duly.nodes.cli import tasks, values
from duly.nodes.client import Queue, SyncClient

_LIMITS = ("rate", "burst", "max_in_flight")


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    api = tasks.api_options()
    listing = commands.add_parser("queues", help="list the queues", parents=[api])
    listing.set_defaults(run=tasks.guarded(_list))
    one = commands.add_parser(
        "queue", help="show a queue; pause, resume or limit it", parents=[api],
        description="Show a queue. With options, set that of it for all nodes, then show it.",
    )  # fmt: skip
    one.add_argument("name", help="the queue's name")
    paused = one.add_mutually_exclusive_group()
    paused.add_argument("--pause", dest="paused", action="store_const", const=True,
                        help="nothing more of it is dispatched")  # fmt: skip
    paused.add_argument("--resume", dest="paused", action="store_const", const=False,
                        help="end that")  # fmt: skip
    one.add_argument("--rate", type=values.limit(float), metavar="N|none",
                     help="dispatch at most N tasks a second, all nodes together")  # fmt: skip
    one.add_argument("--burst", type=values.limit(int), metavar="N|none",
                     help="how many may go at once after a silence (none: what comes in a tenth of a "
                     "second)")  # fmt: skip
    one.add_argument("--max-in-flight", type=values.limit(int), metavar="N|none",
                     help="tasks dispatched and not recorded, at most")  # fmt: skip
    one.set_defaults(run=tasks.guarded(_queue))


def _list(client: SyncClient, args: argparse.Namespace) -> None:
    for queue in client.queues():
        if args.json:
            print(exact_json.encode(queue).decode())
        else:
            about = "" if queue.exact else "~"
            print(f"{queue.queue:<20}  pending {about}{queue.pending}  running {about}{queue.running}  "
                  f"workers {_known(queue.workers)}{_set(queue)}")  # fmt: skip


def _queue(client: SyncClient, args: argparse.Namespace) -> None:
    wanted: dict[str, Any] = {} if args.paused is None else {"paused": args.paused}
    for name in _LIMITS:
        value = getattr(args, name)
        if value is not None:
            wanted[name] = value.number
    queue = client.update_queue(args.name, **wanted) if wanted else client.queue(args.name)
    if args.json:
        print(exact_json.encode(queue).decode())
        return
    for name in queue.__struct_fields__:
        value = getattr(queue, name)
        if value is not None:
            if isinstance(value, datetime):
                value = value.isoformat(timespec="milliseconds")
            elif isinstance(value, bool):
                value = exact_json.encode(value).decode()
            print(f"{name:<13} {value}")


def _set(queue: Queue) -> str:
    """What is set of it, in short."""
    said = [f"  {name.replace('_', ' ')} {getattr(queue, name):g}" for name in _LIMITS
            if getattr(queue, name) is not None]  # fmt: skip
    return ("  paused" if queue.paused else "") + "".join(said)


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)
