"""duly import crontab: the jobs of crontabs as periodic tasks."""

import argparse
import os
import pwd
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duly.nodes import crontab, exact_json
from duly.nodes.cli import tasks, values
from duly.nodes.cli.crontab_tasks import Planned, Source, Target, plan
from duly.nodes.cli.errors import fail
from duly.nodes.cli.local_zone import local_zone
from duly.nodes.client import ApiError, Conflict, NotFound, SyncClient
from duly.wheel import zones
from duly.wheel.preview import COUNT_MAX, Preview

_DAY_S = 86_400
_COMMAND_CHARS = 200
_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{0,190}")


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    importing = commands.add_parser("import", help="take schedules over from elsewhere")
    kinds = importing.add_subparsers(metavar="KIND", required=True, help="what to import")
    parser = kinds.add_parser(
        "crontab", help="the jobs of crontabs as periodic tasks", parents=[tasks.api_options()],
        description="Submit a periodic task for each job of the crontabs, all or none: its payload "
        "is the command line, for the handler duly.contrib.shell. The same line again makes no "
        "second task. A crontab with a line that cannot be taken is refused, and the line named.",
    )  # fmt: skip
    parser.add_argument("files", nargs="+", metavar="FILE",
                        help="crontabs, or - for standard input, as in `crontab -l | duly import "
                        "crontab -`")  # fmt: skip
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--system", action="store_true", default=None, help="a user name stands "
                      "before each command (default for /etc/crontab and what is in a cron.d)")  # fmt: skip
    kind.add_argument("--user", action="store_false", dest="system",
                      help="the crontab of a user: no user names")  # fmt: skip
    parser.add_argument("--tz", metavar="ZONE", help="zone of the times where CRON_TZ sets none "
                        "(default: this machine's)")  # fmt: skip
    parser.add_argument("--type-prefix", default="", metavar="PREFIX", help="the tasks' type is "
                        "PREFIX.shell (default: shell)")  # fmt: skip
    parser.add_argument("--queue", help="which stream they go to (default: default)")
    parser.add_argument("--timeout", type=values.duration, default=_DAY_S, metavar="DURATION",
                        help="longest run of one attempt (default: a day)")  # fmt: skip
    parser.add_argument("--max-retries", type=int, default=0, metavar="N",
                        help="retries allowed (default: 0, as in cron)")  # fmt: skip
    parser.add_argument("--overrun", choices=["skip", "queue"], help="what becomes of a time that "
                        "comes while the job still runs (default: skip)")  # fmt: skip
    parser.add_argument("--misfire-grace", type=values.duration, metavar="DURATION",
                        help="do not run what is later than this")  # fmt: skip
    parser.add_argument("--skip-bad", action="store_true",
                        help="import what can be taken, and name the rest")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true",
                        help="submit nothing; show the next times of each job")  # fmt: skip
    parser.add_argument("--count", type=values.count, default=3, metavar="N", help="how many "
                        f"times --dry-run shows, at most {COUNT_MAX} (default: %(default)s)")  # fmt: skip
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    """duly import crontab."""
    if args.count > COUNT_MAX:
        fail(f"--count: at most {COUNT_MAX}")
    planned = _plan(args)
    if args.dry_run:
        now = datetime.now(UTC)
        for one in planned:
            _show(one, one.preview(now, args.count), args.json)
        return 0

    def submit(client: SyncClient, args: argparse.Namespace) -> None:
        _import(client, planned, args.json)

    return tasks.guarded(submit)(args)


def _plan(args: argparse.Namespace) -> list[Planned]:
    if not _PREFIX.fullmatch(args.type_prefix):
        fail("--type-prefix has up to 190 characters of A-Z, a-z, 0-9, _.:/-")
    options = {"max_retries": args.max_retries, "timeout": args.timeout}
    for name in ("overrun", "misfire_grace"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    target = Target(args.type_prefix, args.queue, _zone(args.tz), options)
    sources = [_read(name, args.system) for name in dict.fromkeys(args.files)]
    plans = plan(sources, target, datetime.now(UTC))
    for name, note in plans.notes:
        _say(f"note: {name}:{note.line}: {note.text}")
    for name, refused in plans.refused:
        _say(f"{name}:{refused.line}: {refused.text}")
    if plans.refused and not args.skip_bad:
        count = len(plans.refused)
        lines = "1 line cannot" if count == 1 else f"{count} lines cannot"
        fail(f"{lines} be taken, so nothing is; --skip-bad leaves out what cannot be taken")
    return plans.tasks


def _zone(given: str | None) -> str:
    if given is None:
        found = local_zone(os.environ)
        if found is None:
            fail("this machine's time zone has no name: give --tz, such as --tz Europe/Berlin")
        return found
    try:
        return zones.zone(given).name
    except zones.ZoneError as error:
        fail(f"--tz: {error}")


def _read(name: str, system: bool | None) -> Source:
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror}")
    text = raw.decode(errors="surrogateescape")
    shown = "stdin" if name == "-" else str(Path(name).absolute())
    if system is None:
        system = _is_system(shown, text)
    return Source(shown, crontab.parse(text, system=system))


def _is_system(name: str, text: str) -> bool:
    """Whether a user name stands before the commands; ends the command if that cannot be told."""
    if crontab.is_system_path(Path(name)):
        return True
    users = set(crontab.user_column(text))
    if not users or not all(_is_account(user) for user in users):
        return False
    if "root" not in users:
        some = min(users)
        fail(f"{name}: is {some!r} a user or a command? Give --system or --user")
    _say(f"note: {name}: a user name stands before each command; --user takes it for a command")
    return True


def _is_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


# Submitting


def _import(client: SyncClient, planned: list[Planned], as_json: bool) -> None:
    """Submit what is not there yet, all or none, and tell of each job what became of it."""
    new = planned
    while new:
        try:
            client.submit_batch(one.task for one in new)
            break
        except Conflict as error:
            known = {one.id for found in error.errors if (one := _at(new, found.field))}
            if not known:
                raise
            new = [one for one in new if one.id not in known]
        except ApiError as error:
            _name_lines(new, error)
            raise
    made = {one.id for one in new}
    for one in planned:
        status = None if one.id in made else _status(client, one.id)
        if as_json:
            _print_json(one, imported=status is None, status=status or "pending")
        else:
            outcome = "imported" if status is None else f"there already, {status}"
            print(f"{one.id}  {outcome}  {one.place}  {one.job.cron}  {_command(one)}")
    if not as_json:
        print(f"{len(made)} imported, {len(planned) - len(made)} there already")


def _at(sent: Sequence[Planned], field: str) -> Planned | None:
    """What the node means by `tasks[3].id`."""
    match = re.match(r"tasks\[(\d+)\]", field)
    return sent[int(match[1])] if match and int(match[1]) < len(sent) else None


def _name_lines(sent: Sequence[Planned], error: ApiError) -> None:
    """Say which lines the node does not like."""
    for found in error.errors:
        one = _at(sent, found.field)
        if one is not None:
            _say(f"{one.place}: {found.field.partition('.')[2]}: {found.message}")


def _status(client: SyncClient, task_id: str) -> str:
    try:
        return client.get(task_id).status
    except NotFound:  # it has ended, and its retention too, since the submission
        return "gone"


# Showing


def _show(one: Planned, next_ones: Preview, as_json: bool) -> None:
    """A job and its next times."""
    if as_json:
        _print_json(one, fire_times=next_ones.fire_times, notes=next_ones.notes)
        return
    user = "" if one.job.user is None else f"{one.job.user}  "
    zone = one.task["schedule"]["timezone"]
    print(f"{one.place}  {one.job.cron}  {zone}  {one.task['type']}  {user}{_command(one)}")
    for at in next_ones.fire_times:
        print(f"    {at.isoformat()}")
    for note in next_ones.notes:
        print(f"    note: {note}")


def _print_json(one: Planned, **more: Any) -> None:
    names = ("id", "type", "queue", "schedule", "payload")
    task = {name: one.task[name] for name in names}
    body = {"file": one.file, "line": one.job.line, **task, **more}
    print(exact_json.encode(body).decode())


def _command(one: Planned) -> str:
    text = one.job.command[:_COMMAND_CHARS]
    return text if text.isprintable() else ascii(text)[1:-1]


def _say(text: str) -> None:
    print(f"duly: {text}", file=sys.stderr)
