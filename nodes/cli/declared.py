"""duly apply and duly export: schedules as code."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from duly.nodes import exact_json
from duly.nodes.cli import tasks, values
from duly.nodes.cli.errors import CommandError, fail
from duly.nodes.client import ApiError, SyncClient
from duly.nodes.declared import writing
from duly.nodes.declared.applying import Applying, StillRunsError
from duly.nodes.declared.planning import Step, UnwantedError, lines, owner_of
from duly.nodes.declared.reading import OWNER_TAG, Declarations, WrongFileError, read
from duly.wheel.durations import to_us

_CHANGES = 2
"""Exit code of a dry run that finds something to change."""


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    api = tasks.api_options()
    apply = commands.add_parser(
        "apply", help="make the cluster's schedules as a file declares them", parents=[api],
        description="Submit, change and (with --prune) cancel periodic tasks, so that they are as the file "
        "says. Applied again, it changes nothing. With --dry-run the exit code is 0 if nothing is to be "
        f"changed, {_CHANGES} if something is, 1 if it cannot be told.",
    )  # fmt: skip
    apply.add_argument(
        "file", metavar="FILE", help="TOML, or JSON (FILE.json); - for standard input"
    )
    apply.add_argument("--dry-run", action="store_true", help="change nothing; show what would be")
    apply.add_argument(
        "--owner", metavar="LABEL", help="whose schedules these are (default: what the file says)"
    )
    apply.add_argument("--prune", action="store_true",
                       help="cancel what the owner has applied and the file does not declare")  # fmt: skip
    apply.add_argument("--replace", action="store_true", help="cancel tasks whose type, queue, on_lost or region "
                       "differs, and submit new ones")  # fmt: skip
    apply.add_argument(
        "--take-over", action="store_true", help="also change what another owner has applied"
    )
    apply.add_argument("--wait", type=values.seconds, default=60.0, metavar="SECONDS", help="how long to wait for "
                       "a task that is running (default: %(default)g)")  # fmt: skip
    apply.set_defaults(run=_apply)
    export = commands.add_parser(
        "export", help="write the cluster's schedules as a file for apply", parents=[api],
        description="Write the unfinished periodic tasks that have a name and no owner, or those of --owner.",
    )  # fmt: skip
    export.add_argument("--owner", metavar="LABEL", help="those that this owner has applied")
    export.add_argument(
        "--format", choices=["toml", "json"], default="toml", help="of the file (default: toml)"
    )
    export.set_defaults(run=tasks.guarded(_export))


def declarations(file: str, owner: str | None = None, now: datetime | None = None) -> Declarations:
    """Read a file, as of `now`. Ends the command if it cannot be taken."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {file}: {getattr(error, 'strerror', None) or error}")
    is_json = text.lstrip().startswith("{") if file == "-" else file.endswith(".json")
    try:
        return read(
            text,
            is_json=is_json,
            now_us=time.time_ns() // 1000 if now is None else to_us(now),
            owner=owner,
        )
    except WrongFileError as error:
        found = "\n      ".join(f"{one.field}: {one.message}" for one in error.errors)
        fail(f"{file}: {found}")


def _apply(args: argparse.Namespace) -> int:
    outcome = 0

    def act(client: SyncClient, args: argparse.Namespace) -> None:
        nonlocal outcome
        applying = Applying(
            client, declared, take_over=args.take_over, replace=args.replace, wait_s=args.wait
        )
        try:
            steps = applying.plan(prune=args.prune)
            if not args.dry_run:
                applying.check(steps)
        except UnwantedError as error:
            fail(str(error), 1)
        outcome = _show(steps, args) if args.dry_run else _carry_out(applying, steps, args)

    try:
        declared = declarations(args.file, args.owner)
        if args.prune and declared.owner is None:
            fail("--prune needs an owner: --owner LABEL, or owner = ... in the file")
        tasks.guarded(act)(args)
    except CommandError as error:
        if args.dry_run:  # there 2 means that something is to be changed
            raise CommandError(str(error), 1) from None
        raise
    return outcome


def _show(steps: Sequence[Step], args: argparse.Namespace) -> int:
    for one in steps:
        _tell(one, args)
    _sum_up(steps, args)
    return _CHANGES if any(one.kind != "keep" for one in steps) else 0


def _carry_out(applying: Applying, steps: Sequence[Step], args: argparse.Namespace) -> int:
    """One that fails does not keep the others from it."""
    done: list[Step] = []
    for one in steps:
        try:
            done.append(applying.carry_out(one))
            _tell(done[-1], args)
        except ApiError as error:
            print(f"duly: {one.name}: {tasks.explain(error)}", file=sys.stderr)
        except (UnwantedError, StillRunsError) as error:
            print(f"duly: {error}", file=sys.stderr)
    _sum_up(done, args)
    return 0 if len(done) == len(steps) else 1


def _tell(one: Step, args: argparse.Namespace) -> None:
    if args.json:
        fields = {name: {"from": old, "to": new} for name, old, new in one.fields}
        task_id = None if one.live is None else str(one.live.id)
        body = {"action": one.kind, "name": one.name, "id": task_id, "fields": fields}
        print(exact_json.encode(body).decode())
    elif one.kind != "keep":
        print("\n".join(lines(one)))


def _sum_up(steps: Sequence[Step], args: argparse.Namespace) -> None:
    if not args.json:
        counts = Counter(one.kind for one in steps)
        print(f"{'to be ' if args.dry_run else ''}added {counts['add']}, changed {counts['change']}, "
              f"replaced {counts['replace']}, deleted {counts['delete']}; unchanged {counts['keep']}")  # fmt: skip


def _export(client: SyncClient, args: argparse.Namespace) -> None:
    tag = None if args.owner is None else f"{OWNER_TAG}:{args.owner}"
    live = [task for task in client.list(periodic=True, tag=tag) if task.finished_at is None]
    found = [task for task in live if task.name is not None and owner_of(task) == args.owner]
    if len(live) > len(found):
        others = sorted(
            {owner_of(task) or "" for task in live if task.name is not None} - {"", args.owner}
        )
        nameless = sum(task.name is None for task in live)
        said = [f"{nameless} have no name"] if nameless else []
        said += [f"others are applied by {', '.join(others)} (--owner)"] if others else []
        print(f"duly: not written: {'; '.join(said)}", file=sys.stderr)
    content = writing.document(found, args.owner)
    try:
        text = writing.as_json(content) if args.format == "json" else writing.as_toml(content)
    except writing.UnwritableError as error:
        fail(str(error), 1)
    sys.stdout.write(text)
