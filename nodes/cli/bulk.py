"""duly bulk: one action on all tasks that a filter finds."""

import argparse
import time
from typing import Any

from duly.nodes import exact_json
from duly.nodes.cli import tasks, values
from duly.nodes.cli.errors import fail
from duly.nodes.client import BulkJob, SyncClient

_ACTIONS = {
    "cancel": "cancel pending and running tasks",
    "retry": "make failed tasks due now",
    "pause": "let tasks not begin until they are resumed",
    "resume": "end the pause of tasks",
    "reschedule": "make pending tasks due at another time",
}
_LOOK_EVERY_S = 0.5


def add_to(commands: Any) -> None:
    """Add this sub-command and those below it."""
    bulk = commands.add_parser("bulk", help="do one thing to all tasks that a filter finds")
    below = bulk.add_subparsers(metavar="ACTION", required=True, help="what to do")
    api = tasks.api_options()
    for name, text in _ACTIONS.items():
        act = below.add_parser(
            name, help=text, parents=[api],
            description=f"{text.capitalize()}: tell how many they are and show some, or with --yes do it.",
        )  # fmt: skip
        tasks.add_filter(act)
        if name == "reschedule":
            when = act.add_mutually_exclusive_group(required=True)
            when.add_argument("--at", dest="run_at", metavar="TIME", help="due at this time")
            when.add_argument("--in", dest="delay", metavar="DURATION", help="due after this time")
        act.add_argument("--rate", type=float, metavar="N",
                         help="tasks a second at most (default: 500)")  # fmt: skip
        act.add_argument("--yes", action="store_true", help="do it, and wait until it is done")
        act.set_defaults(run=tasks.guarded(_act), action=name)
    listing = below.add_parser("list", help="list the jobs, newest first", parents=[api])
    listing.add_argument("--limit", type=values.count, default=20, metavar="N",
                         help="most jobs shown (default: %(default)s)")  # fmt: skip
    listing.set_defaults(run=tasks.guarded(_list))
    for name, run, text in (("show", _show, "show a job"), ("stop", _stop, "change no more tasks")):
        one = below.add_parser(name, help=text, parents=[api])
        one.add_argument("id", help="the job's id")
        one.set_defaults(run=tasks.guarded(run))


def _act(client: SyncClient, args: argparse.Namespace) -> None:
    where: Any = {
        name: getattr(args, name) for name in tasks.FILTER if getattr(args, name) is not None
    }
    when: dict[str, Any] = {}
    if args.action == "reschedule":
        when = {"run_at": args.run_at, "delay": values.duration(args.delay)}
    if args.yes:
        job = client.bulk.begin(args.action, where, rate=args.rate, **when)
        while job.finished_at is None:
            time.sleep(_LOOK_EVERY_S)
            job = client.bulk.job(job.id)
        _print(job, args)
        if job.status != "done":
            fail(f"the job is {job.status}", 1)
        return
    found = client.bulk.preview(args.action, where, **when)
    if args.json:
        print(exact_json.encode(found).decode())
        return
    for task in found.sample:
        print(tasks.line(task))
    about = "" if found.exact else "about "
    print(f"{about}{found.count} tasks; --yes to {args.action} them")


def _list(client: SyncClient, args: argparse.Namespace) -> None:
    for job in client.bulk.jobs(limit=args.limit):
        _print(job, args)


def _show(client: SyncClient, args: argparse.Namespace) -> None:
    _print(client.bulk.job(args.id), args)


def _stop(client: SyncClient, args: argparse.Namespace) -> None:
    _print(client.bulk.stop(args.id), args)


def _print(job: BulkJob, args: argparse.Namespace) -> None:
    if args.json:
        print(exact_json.encode(job).decode())
        return
    about = "" if job.exact else "about "
    where = "  ".join(f"{name}={value}" for name, value in job.filter.items())
    error = "" if job.error is None else f"  {job.error}"
    print(f"{job.id}  {job.status:<8}  {job.action}  {job.done} of {about}{job.total}, "
          f"{job.refused} refused  {where}{error}")  # fmt: skip
