"""duly get, list, cancel, retry, pause, resume, run-now, runs, alerts: the API from the command line."""

import argparse
import os
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from duly.nodes import exact_json
from duly.nodes.cli import values
from duly.nodes.cli.errors import fail
from duly.nodes.client import (
    Alert,
    ApiError,
    DulyError,
    Occurrence,
    Run,
    SyncClient,
    Task,
    Verdict,
)

_ERROR_CHARS = 200
_STATUSES = ["pending", "running", "completed", "failed", "cancelled"]


def api_options() -> argparse.ArgumentParser:
    """A parent parser: where the API is, and how answers are shown."""
    api = argparse.ArgumentParser(add_help=False)
    api.add_argument("--url", default=os.environ.get("DULY_URL") or "http://127.0.0.1:8080",
                     help="the API of a node (default: DULY_URL, else %(default)s)")  # fmt: skip
    api.add_argument("--token", default=os.environ.get("DULY_TOKEN") or None, help="bearer token, "
                     "if the node asks for one (default: DULY_TOKEN)")  # fmt: skip
    api.add_argument("--json", action="store_true",
                     help="print the API's JSON, an object a line")  # fmt: skip
    return api


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    api = api_options()
    listing = commands.add_parser("list", help="list tasks, newest first", parents=[api])
    add_filter(listing)
    listing.add_argument("--limit", type=values.count, default=20, metavar="N",
                         help="most tasks shown (default: %(default)s)")  # fmt: skip
    listing.set_defaults(run=guarded(_list))

    watched = commands.add_parser(
        "alerts", help="list watched schedules that are silent or were paused", parents=[api]
    )
    watched.add_argument("--all", action="store_true", help="also those that are over")
    watched.set_defaults(run=guarded(_alerts))

    for name, act, text in (
        ("get", _get, "show a task"),
        ("cancel", _cancel, "cancel a pending or running task"),
        ("retry", _retry, "make a failed task due now"),
        ("pause", _pause, "let a task not begin until it is resumed"),
        ("resume", _resume, "end a task's pause"),
        ("run-now", _run_now, "make a pending task due now"),
        ("runs", _runs, "list the finished attempts of a task, newest first"),
    ):
        parser = commands.add_parser(name, help=text, parents=[api])
        what = (
            "its id" if name in ("retry", "runs") else "its id, or its name while it is unfinished"
        )
        parser.add_argument("id", metavar="TASK", help=what)
        parser.set_defaults(run=guarded(act))


FILTER = ("status", "type", "queue", "tag", "due_before", "due_after", "periodic", "paused", "name")
"""What the options of `add_filter` are called."""


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which tasks."""
    parser.add_argument("--status", choices=_STATUSES)
    parser.add_argument("--type", help="tasks of this type")
    parser.add_argument("--queue", help="tasks of this queue")
    parser.add_argument("--tag", metavar="NAME:VALUE", help="tasks with this tag")
    parser.add_argument("--due-before", metavar="TIME", help="pending tasks due before this time")
    parser.add_argument("--due-after", metavar="TIME", help="pending tasks due at or after it")
    parser.add_argument("--periodic", action=argparse.BooleanOptionalAction,
                         help="only periodic tasks, or only others")  # fmt: skip
    parser.add_argument("--paused", action=argparse.BooleanOptionalAction,
                         help="only paused tasks, or only others")  # fmt: skip
    parser.add_argument("--name", help="the task with this name")


def guarded(
    act: Callable[[SyncClient, argparse.Namespace], None],
) -> Callable[[argparse.Namespace], int]:
    """Make a command of what talks to the API; its errors end the command."""

    def run(args: argparse.Namespace) -> int:
        try:
            with SyncClient(args.url, token=args.token) as client:
                act(client, args)
        except ApiError as error:
            fail(explain(error), 1)
        except DulyError as error:
            fail(f"{args.url} does not answer: {error}", 1)
        except ValueError as error:  # an argument that the client refuses
            fail(str(error))
        return 0

    return run


def explain(error: ApiError) -> str:
    """The fields that are wrong, a line each; without any, what the node says."""
    if error.errors:
        return "\n      ".join(f"{one.field}: {one.message}" for one in error.errors)
    problem = error.problem
    return str(problem.get("detail") or problem.get("title") or f"status {error.status}")


def _id(client: SyncClient, args: argparse.Namespace) -> UUID:
    """The id that is given, or that of the unfinished task with the name that is given."""
    try:
        return UUID(args.id)
    except ValueError:
        return client.get_by_name(args.id).id


def _get(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.get(_id(client, args)), args)


def _cancel(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.cancel(_id(client, args)), args)


def _retry(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.retry(args.id), args)


def _pause(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.pause(_id(client, args)), args)


def _resume(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.resume(_id(client, args)), args)


def _run_now(client: SyncClient, args: argparse.Namespace) -> None:
    show(client.run_now(_id(client, args)), args)


def _list(client: SyncClient, args: argparse.Namespace) -> None:
    names = (*FILTER, "limit")
    filters = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    for task in client.list(**filters):
        if args.json:
            print_json(task)
        else:
            print(line(task))


def line(task: Task) -> str:
    """A task in one line."""
    due = task.next_run_at or task.finished_at
    return f"{task.id}  {task.status:<9}  {time(due):<29}  {task.queue}  {task.type}"


def _runs(client: SyncClient, args: argparse.Namespace) -> None:
    for run in client.runs(args.id):
        if args.json:
            print_json(run)
        else:
            error = "" if run.error is None else f"  {error_text(run.error)}"
            print(f"attempt {run.attempt}  token {run.token}  {run.outcome:<9}  "
                  f"{time(run.finished_at)}  {run.worker or '-'}{error}")  # fmt: skip


def _alerts(client: SyncClient, args: argparse.Namespace) -> None:
    for alert in client.alerts(open=None if args.all else True):
        if args.json:
            print_json(alert)
        else:
            over = "" if alert.cleared_at is None else f"  over {time(alert.cleared_at)}"
            print(f"{alert.task_id}  {alert.kind:<11}  since {time(alert.since)}{over}  "
                  f"{alert.queue}  {alert.type}")  # fmt: skip


def show(task: Task, args: argparse.Namespace) -> None:
    """A task, a field a line."""
    if args.json:
        print_json(task)
        return
    for name in ("id", "name", "type", "queue", "status", "paused", "next_run_at", "schedule", "version", "retry_count",
                 "max_retries", "worker", "finished_at", "payload", "result", "error"):  # fmt: skip
        value = getattr(task, name)
        if value is None or (name in ("retry_count", "paused") and not value):
            continue
        if isinstance(value, datetime):
            value = time(value)
        elif name in ("payload", "result", "error", "schedule", "paused"):
            value = exact_json.encode(value).decode()
        print(f"{name:<12} {value}")


def print_json(value: Task | Run | Alert | Occurrence | Verdict) -> None:
    """As the API shows it, in one line."""
    print(exact_json.encode(value).decode())


def error_text(error: Any) -> str:
    """An error in one short line."""
    if isinstance(error, dict) and {"type", "message"} <= error.keys():
        text = f"{error['type']}: {error['message']}"
    else:
        text = exact_json.encode(error).decode()
    return ascii(text[:_ERROR_CHARS])[1:-1] if not text.isprintable() else text[:_ERROR_CHARS]


def time(value: datetime | None) -> str:
    """To the millisecond; a dash for none."""
    return "-" if value is None else value.isoformat(timespec="milliseconds")
