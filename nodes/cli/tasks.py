"""duly submit, get, list, cancel, retry, pause, resume, run-now, runs, alerts: the API from the command line."""

import argparse
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

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

_json: exact_json.ExactDecoder[Any] = exact_json.ExactDecoder()
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
    _add_submit(commands, api)
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


def _add_submit(commands: Any, api: argparse.ArgumentParser) -> None:
    submit = commands.add_parser(
        "submit", help="submit a task", parents=[api],
        description="Submit a task, due now, at a time (--at) or after a while (--in). A DURATION "
        "is a number of seconds or an ISO 8601 duration such as PT5M.",
    )  # fmt: skip
    submit.add_argument("type", help="which handler runs it")
    submit.add_argument("payload", nargs="?", default="null",
                        help="JSON, or - to read it from standard input (default: null)")  # fmt: skip
    when = submit.add_mutually_exclusive_group()
    when.add_argument("--at", dest="run_at", metavar="TIME",
                      help="due at this time, such as 2026-12-24T18:00:00+01:00")  # fmt: skip
    when.add_argument("--in", dest="delay", metavar="DURATION", help="due after this time")
    periodic = submit.add_mutually_exclusive_group()
    periodic.add_argument("--every", metavar="DURATION", help="run it again and again")
    periodic.add_argument(
        "--cron", metavar="EXPRESSION", help='run it by this, such as "0 3 * * *"'
    )
    submit.add_argument("--tz", dest="timezone", metavar="ZONE",
                        help="time zone of --cron (default: UTC)")  # fmt: skip
    submit.add_argument("--overrun", choices=["skip", "queue"],
                        help="what becomes of an occurrence that comes due while the one before "
                        "runs (default: skip)")  # fmt: skip
    submit.add_argument("--queue", help="which stream it goes to (default: default)")
    submit.add_argument("--priority", type=int, metavar="N", help="0 to 9, 9 first (default: 5)")
    submit.add_argument("--max-retries", type=int, metavar="N", help="retries allowed (default: 3)")
    submit.add_argument("--timeout", metavar="DURATION",
                        help="longest run of one attempt (default: 300)")  # fmt: skip
    submit.add_argument("--misfire-grace", metavar="DURATION",
                        help="do not run it if it is later than this")  # fmt: skip
    submit.add_argument("--on-lost", choices=["retry", "fail"],
                        help="what the death of its worker means (default: retry)")  # fmt: skip
    submit.add_argument("--name", help="its own among unfinished tasks; a second submission with it, and "
                        "defined alike, makes no second task")  # fmt: skip
    submit.add_argument("--key", dest="idempotency_key",
                        help="a second submission with this key makes no second task")  # fmt: skip
    submit.add_argument("--concurrency-key", metavar="KEY",
                        help="only so many tasks with this key run at once")  # fmt: skip
    submit.add_argument("--concurrency-limit", type=int, metavar="N",
                        help="how many: 1 to 10000 (default: 1)")  # fmt: skip
    submit.add_argument("--fairness-key", metavar="KEY",
                        help="due tasks of its queue take turns by this key")  # fmt: skip
    submit.add_argument("--on-success", metavar="TASK",
                        help='the task that follows if it completes, as JSON: {"type": "next"}')  # fmt: skip
    submit.add_argument("--on-failure", metavar="TASK",
                        help="the task that follows if it ends failed, as JSON")  # fmt: skip
    submit.add_argument("--after", action="append", metavar="ID", type=UUID,
                        help="it waits until the task with this id has completed; may be given several times")  # fmt: skip
    submit.add_argument("--region", metavar="NAME",
                        help="the region it belongs to (default: the one that is asked)")  # fmt: skip
    submit.add_argument("--tag", dest="tags", action="append", metavar="NAME=VALUE", default=[],
                        help="a tag to search by; may be given several times")  # fmt: skip
    submit.add_argument("-q", "--quiet", action="store_true", help="print the task's id alone")
    submit.set_defaults(run=guarded(_submit))


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


def _follow_up(name: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        said = _json.decode(text)
    except msgspec.DecodeError as error:
        fail(f"--{name.replace('_', '-')} is not JSON: {error}")
    if not isinstance(said, dict):
        fail(f"--{name.replace('_', '-')} is not a JSON object")
    return said


def _submit(client: SyncClient, args: argparse.Namespace) -> None:
    text = sys.stdin.read() if args.payload == "-" else args.payload
    try:
        payload = _json.decode(text)
    except msgspec.DecodeError as error:
        fail(f"the payload is not JSON: {error}")
    given = {
        name: getattr(args, name)
        for name in ("queue", "run_at", "priority", "max_retries", "on_lost", "idempotency_key",
                     "overrun", "concurrency_key", "concurrency_limit", "fairness_key",
                     "region", "name", "after")
    }  # fmt: skip
    for name in ("on_success", "on_failure"):
        given[name] = _follow_up(name, getattr(args, name))
    for name in ("delay", "timeout", "misfire_grace"):
        given[name] = values.duration(getattr(args, name))
    options: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if args.every is not None:
        options["schedule"] = {"every": values.duration(args.every)}
    elif args.cron is not None:
        options["schedule"] = {"cron": args.cron, "timezone": args.timezone or "UTC"}
    if args.timezone is not None and args.cron is None:
        fail("--tz goes with --cron")
    if args.tags:
        options["tags"] = dict(_tag(tag) for tag in args.tags)
    task = client.submit(args.type, payload, **options)
    if args.quiet:
        print(task.id)
    else:
        _show(task, args)


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"--tag {text!r}: write NAME=VALUE")
    return name, value


def _id(client: SyncClient, args: argparse.Namespace) -> UUID:
    """The id that is given, or that of the unfinished task with the name that is given."""
    try:
        return UUID(args.id)
    except ValueError:
        return client.get_by_name(args.id).id


def _get(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.get(_id(client, args)), args)


def _cancel(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.cancel(_id(client, args)), args)


def _retry(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.retry(args.id), args)


def _pause(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.pause(_id(client, args)), args)


def _resume(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.resume(_id(client, args)), args)


def _run_now(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.run_now(_id(client, args)), args)


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


def _show(task: Task, args: argparse.Namespace) -> None:
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
