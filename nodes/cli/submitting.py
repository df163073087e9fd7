"""duly submit: a task from the command line."""

import argparse
import sys
from typing import Any
from uuid import UUID

import msgspec

from duly.nodes import exact_json
from duly.nodes.cli import values
from duly.nodes.cli.errors import fail
from duly.nodes.cli.tasks import api_options, guarded, show
from duly.nodes.client import SyncClient

_json: exact_json.ExactDecoder[Any] = exact_json.ExactDecoder()


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    submit = commands.add_parser(
        "submit", help="submit a task", parents=[api_options()],
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
        show(task, args)


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"--tag {text!r}: write NAME=VALUE")
    return name, value
