"""duly submit, get, list, cancel, retry, runs: the API from the command line."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from duly.nodes.cli.errors import fail
from duly.nodes.client import DulyError, Run, SyncClient, Task
from duly.nodes.exact_json import ExactDecoder

_json: ExactDecoder[Any] = ExactDecoder()


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    api = argparse.ArgumentParser(add_help=False)
    api.add_argument("--url", default=os.environ.get("DULY_URL", "http://127.0.0.1:8080"),
                     help="the API of a node (default: DULY_URL, else %(default)s)")  # fmt: skip
    api.add_argument("--token", default=os.environ.get("DULY_TOKEN"), help="default: DULY_TOKEN")
    api.add_argument("--json", action="store_true", help="print JSON")

    submit = commands.add_parser("submit", help="submit a task", parents=[api])
    submit.add_argument("type", help="which handler runs it")
    submit.add_argument("payload", nargs="?", default="null", help="JSON, or - for standard input")
    submit.add_argument("--queue")
    submit.add_argument("--at", dest="run_at", metavar="TIME", help="RFC 3339 with offset")
    submit.add_argument("--in", dest="delay", metavar="DURATION", help="seconds or ISO 8601 (PT5M)")
    submit.add_argument("--priority", type=int, help="0 (first) to 9")
    submit.add_argument("--max-retries", type=int)
    submit.add_argument("--timeout", metavar="DURATION")
    submit.add_argument("--key", dest="idempotency_key", help="idempotency key")
    submit.add_argument("--tag", dest="tags", action="append", metavar="NAME=VALUE", default=[])
    submit.set_defaults(run=_guarded(_submit))

    listing = commands.add_parser("list", help="list tasks, newest first", parents=[api])
    for name in ("status", "type", "queue", "tag", "due-before", "due-after"):
        listing.add_argument(f"--{name}")
    listing.add_argument("--limit", type=int, default=20)
    listing.set_defaults(run=_guarded(_list))

    for name, act, text in (
        ("get", _get, "show a task"),
        ("cancel", _cancel, "cancel a pending or running task"),
        ("retry", _retry, "make a failed task due now"),
        ("runs", _runs, "list the runs of a task, newest first"),
    ):
        parser = commands.add_parser(name, help=text, parents=[api])
        parser.add_argument("id")
        parser.set_defaults(run=_guarded(act))


def _guarded(
    act: Callable[[SyncClient, argparse.Namespace], None],
) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        try:
            with SyncClient(args.url, token=args.token) as client:
                act(client, args)
        except (DulyError, ValueError) as error:
            fail(str(error), 1)
        return 0

    return run


def _submit(client: SyncClient, args: argparse.Namespace) -> None:
    text = sys.stdin.read() if args.payload == "-" else args.payload
    try:
        payload = _json.decode(text)
    except msgspec.DecodeError as error:
        fail(f"the payload is not JSON: {error}")
    options: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("queue", "run_at", "priority", "max_retries", "idempotency_key")
        if getattr(args, name) is not None
    }
    for name in ("delay", "timeout"):
        value = getattr(args, name)
        if value is not None:
            options[name] = _duration(value)
    if args.tags:
        options["tags"] = dict(_tag(tag) for tag in args.tags)
    _show(client.submit(args.type, payload, **options), args)


def _duration(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"--tag {text!r}: write NAME=VALUE")
    return name, value


def _get(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.get(args.id), args)


def _cancel(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.cancel(args.id), args)


def _retry(client: SyncClient, args: argparse.Namespace) -> None:
    _show(client.retry(args.id), args)


def _list(client: SyncClient, args: argparse.Namespace) -> None:
    names = ("status", "type", "queue", "tag", "due_before", "due_after", "limit")
    filters = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    for task in client.list(**filters):
        if args.json:
            _print_json(task)
        else:
            due = task.next_run_at or task.finished_at
            print(f"{task.id}  {task.status:<9}  {_time(due)}  {task.queue}  {task.type}")


def _runs(client: SyncClient, args: argparse.Namespace) -> None:
    for run in client.runs(args.id):
        if args.json:
            _print_json(run)
        else:
            error = "" if run.error is None else f"  {json.dumps(run.error, default=str)[:200]}"
            print(f"attempt {run.attempt}  token {run.token}  {run.outcome:<9}  "
                  f"{_time(run.finished_at)}  {run.worker or '-'}{error}")  # fmt: skip


def _show(task: Task, args: argparse.Namespace) -> None:
    if args.json:
        _print_json(task)
        return
    for name in ("id", "type", "queue", "status", "next_run_at", "version", "retry_count",
                 "max_retries", "worker", "finished_at", "payload", "result", "error"):  # fmt: skip
        value = getattr(task, name)
        if value is None or (name == "retry_count" and value == 0):
            continue
        if isinstance(value, datetime):
            value = _time(value)
        elif name in ("payload", "result", "error"):
            value = msgspec.json.encode(value).decode()
        print(f"{name:<12} {value}")


def _print_json(value: Task | Run) -> None:
    print(msgspec.json.encode(value).decode())


def _time(value: datetime | None) -> str:
    return "-" if value is None else value.isoformat(timespec="milliseconds")
