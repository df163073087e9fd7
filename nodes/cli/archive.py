"""duly archive: days of finished tasks and runs in files, before they are dropped."""

import argparse
import asyncio
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from duly.nodes.archive import verify
from duly.nodes.archive.export import Exported, export
from duly.nodes.archive.folder import Entry, FolderError
from duly.nodes.cli import settings
from duly.nodes.cli.errors import fail
from duly.storage import archive
from duly.storage.archive import Kind
from duly.storage.errors import StoreError
from duly.wheel.durations import parse_duration

_KINDS: dict[str, tuple[Kind, ...]] = {
    "tasks": ("tasks",),
    "runs": ("runs",),
    "all": ("runs", "tasks"),
}
_UNITS = {"h": 3_600, "d": 86_400, "w": 604_800}


def add_to(commands: Any) -> None:
    """Add this sub-command and those below it."""
    top = commands.add_parser(
        "archive", help="days of finished tasks and runs in files, and whether these are whole"
    )
    below = top.add_subparsers(metavar="ACTION", required=True, help="what to do")
    out = below.add_parser(
        "export",
        help="write whole days to compressed files of JSON lines",
        description="Write whole days (UTC) of finished tasks and runs to compressed files of JSON lines, "
        "a file for each day and kind. What is there already and is right stays; so it can be run "
        "again at any time.",
        parents=[settings.flags(["database_url", "database_urls"])],
    )
    out.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="the folder of the archive"
    )
    which = out.add_mutually_exclusive_group()
    which.add_argument("--before", type=_date, metavar="DATE",
                       help="days before this one (default: all that are over)")  # fmt: skip
    which.add_argument("--older-than", type=_age, metavar="AGE", default=timedelta(0),
                       help="days that ended so long ago: 5d, 36h, 2w or an ISO 8601 duration")  # fmt: skip
    out.add_argument("--kind", choices=_KINDS, default="all", help="default: %(default)s")
    out.add_argument("--store", type=int, choices=range(64), metavar="N",
                     help="of several stores the one at this place of database_urls, from 0")  # fmt: skip
    out.set_defaults(run=_guarded(_export))
    for name, run, text in (
        ("list", _list, "list the files of an archive"),
        ("verify", _verify, "look whether the files of an archive are whole"),
    ):
        one = below.add_parser(name, help=text, description=f"{text.capitalize()}.")
        one.add_argument("folder", type=Path, metavar="DIR", help="the folder of the archive")
        one.set_defaults(run=_guarded(run))
        if name == "list":
            one.add_argument("--json", action="store_true", help="print a JSON object for each")


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except (FolderError, StoreError) as error:
            fail(str(error), 1)

    return guarded


def _export(args: argparse.Namespace) -> int:
    urls = settings.need("database_url", settings.read(args).stores)
    if len(urls) > 1 and args.store is None:
        fail(f"there are {len(urls)} stores: give --store, from 0 to {len(urls) - 1}")
    at = args.store or 0
    if at >= len(urls):
        fail(f"there is no store {at}: they are numbered from 0 to {len(urls) - 1}")
    gone = asyncio.run(_export_from(urls[at], args))
    return 1 if gone else 0


async def _export_from(database_url: str, args: argparse.Namespace) -> int:
    gone = 0

    def tell(one: Exported) -> None:
        nonlocal gone
        gone += one.entry is None
        about = "dropped meanwhile" if one.entry is None else _about(one.entry)
        print(f"{one.what:<7}  {one.name}  {about}", flush=True)

    async with archive.opened(database_url) as store:
        source = await store.source()
        before = archive.first_after(source.now, args.older_than)
        if args.before is not None:
            before = min(before, args.before)
        await export(store, source, args.to, _KINDS[args.kind], before, tell)
    return gone


def _list(args: argparse.Namespace) -> int:
    for name, entry in verify.manifest(args.folder).files.items():
        if args.json:
            print(msgspec.json.encode({"name": name, **msgspec.structs.asdict(entry)}).decode())
        else:
            print(f"{name}  {_about(entry)}  {entry.sha256}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    wrong = 0
    for one in verify.verify(args.folder):
        wrong += one.wrong is not None
        print(f"{one.name}  {one.wrong or 'ok'}", flush=True)
    if wrong:
        fail(f"{wrong} files are not what the manifest says", 1)
    return 0


def _about(entry: Entry) -> str:
    return f"{entry.rows} rows  {entry.bytes} bytes"


def _date(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-11-29") from None


def _age(text: str) -> timedelta:
    short = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    try:
        seconds = int(short[1]) * _UNITS[short[2]] if short else parse_duration(text)
        return timedelta(seconds=seconds)
    except ValueError:
        allowed = "is neither a time such as 5d, 36h or 2w, nor an ISO 8601 duration such as P5D"
        raise argparse.ArgumentTypeError(f"{text!r} {allowed}") from None
