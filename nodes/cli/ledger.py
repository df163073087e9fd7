"""duly ledger: what became of each due time, of one task or of all."""

import argparse
from datetime import datetime
from typing import Any

from duly.nodes.cli import tasks, values
from duly.nodes.client import Occurrence, SyncClient, Verdict

_VERDICTS = ["completed", "failed", "cancelled", "skipped", "rejected"]
_REASONS = ["overrun", "misfire", "paused", "ended", "replaced", "expired"]
_FILTERS = ("since", "until", "type", "queue", "verdict", "reason")


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "ledger", help="list what became of each due time, newest first", parents=[tasks.api_options()],
        description="What became of each due time: of one task, with its attempts and the reports that "
        "were refused; or of all, by time and filter.",
    )  # fmt: skip
    parser.add_argument("id", nargs="?", help="the task's id (default: all tasks)")
    parser.add_argument("--since", metavar="TIME", help="recorded at or after this time")
    parser.add_argument("--until", metavar="TIME", help="recorded before this time")
    parser.add_argument("--type", help="of tasks of this type")
    parser.add_argument("--queue", help="of tasks of this queue")
    parser.add_argument("--verdict", choices=_VERDICTS, help="rejected: reports that were refused")
    parser.add_argument("--reason", choices=_REASONS, help="why it was skipped")
    parser.add_argument("--limit", type=values.count, default=20, metavar="N",
                        help="most due times shown (default: %(default)s)")  # fmt: skip
    parser.set_defaults(run=tasks.guarded(_ledger))


def _ledger(client: SyncClient, args: argparse.Namespace) -> None:
    filters = {name: getattr(args, name) for name in _FILTERS if getattr(args, name) is not None}
    if args.id is None:
        for verdict in client.verdicts(**filters, limit=args.limit):
            show = tasks.print_json if args.json else _show_verdict
            show(verdict)
        return
    if filters:
        raise ValueError(f"--{next(iter(filters))} goes without an id")
    for one in client.ledger(args.id, limit=args.limit):
        show_one = tasks.print_json if args.json else _show_occurrence
        show_one(one)


def _show_verdict(one: Verdict) -> None:
    said = f"{one.outcome} by {one.worker or '-'}" if one.verdict == "rejected" else one.reason
    print(f"{tasks.time(one.recorded_at)}  {one.verdict:<9}  {one.task_id}  "
          f"due {tasks.time(one.occurrence)}  {one.queue}  {one.type}{_more(said, one.through)}"
          f"{_error(one.error)}")  # fmt: skip


def _show_occurrence(one: Occurrence) -> None:
    print(
        f"due {tasks.time(one.occurrence)}  {one.verdict or 'open'}{_more(one.reason, one.through)}"
    )
    for run in one.attempts:
        print(f"    attempt {run.attempt}  token {run.token}  {run.outcome:<9}  "
              f"{tasks.time(run.finished_at)}  {run.worker or '-'}{_error(run.error)}")  # fmt: skip
    for said in one.rejected:
        times = f"  {said.times} times" if said.times > 1 else ""
        print(f"    rejected: {said.reason}  token {said.token}  {said.outcome:<9}  "
              f"{tasks.time(said.received_at)}  {said.worker or '-'}{times}{_error(said.error)}")  # fmt: skip


def _more(reason: str | None, through: datetime | None) -> str:
    text = "" if reason is None else f"  {reason}"
    return text if through is None else f"{text}, and all up to {tasks.time(through)}"


def _error(error: Any) -> str:
    return "" if error is None else f"  {tasks.error_text(error)}"
