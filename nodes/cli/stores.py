"""duly store: whether the databases of a cluster fit together, and moving tasks from one to another."""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from duly.nodes.cli import settings
from duly.nodes.cli.errors import fail
from duly.storage import moving, stores
from duly.storage.errors import StoreError
from duly.storage.layout import ranges
from duly.storage.members import Members, store_of
from duly.storage.move_session import MoveError, MoveSession
from duly.storage.redis import TROUBLE
from duly.storage.slots import SLOTS

_TIMEOUT_S = 5.0
_SETTLE_S = 15.0


def add_to(commands: Any) -> None:
    """Add this sub-command and those below it."""
    top = commands.add_parser("store", help="the databases of a cluster that has several")
    below = top.add_subparsers(metavar="ACTION", required=True, help="what to do")
    check = below.add_parser(
        "check",
        help="look whether the stores fit together",
        description="Look at each store: whether it answers, its version, its schema, its slots, and about "
        "how many tasks it has. Exit code 1 if they do not fit together.",
        parents=[settings.flags(["database_url", "database_urls"])],
    )
    check.set_defaults(run=_check)
    move = below.add_parser(
        "move-slots",
        help="move slots to another store while the nodes run",
        description="Move slots with all their tasks to another store while the nodes run. Broken off, the "
        "same command finishes it, and --undo leaves the slots where they were.",
        parents=[settings.flags(["database_urls", "redis_url"])],
    )
    for name, text in (("from", "that has them"), ("to", "that is to have them")):
        move.add_argument(f"--{name}", dest=f"{name}_store", type=int, required=True, metavar="NUMBER",
                          help=f"the store {text}: its place in database_urls, from 0 on")  # fmt: skip
    move.add_argument(
        "--slots", type=_slots, required=True, metavar="A-B", help="which, as 64-127 or 5"
    )
    move.add_argument(
        "--undo",
        action="store_true",
        help="give up a move that was broken off; what was copied is deleted",
    )
    move.set_defaults(run=_move)


def _slots(text: str) -> list[int]:
    match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last < SLOTS:
        raise argparse.ArgumentTypeError(f"must be a slot or a range, within 0-{SLOTS - 1}")
    return list(range(first, last + 1))


def _check(args: argparse.Namespace) -> int:
    """duly store check."""
    urls = settings.need("database_urls", settings.read(args).stores)
    return asyncio.run(_look(urls))


async def _look(urls: tuple[str, ...]) -> int:
    found: list[stores.Facts | None] = []
    for at, url in enumerate(urls):
        name = stores.name(url, at)
        try:
            facts = await stores.facts(url)
        except StoreError as error:
            print(f"{name}: {error}")
            found.append(None)
            continue
        found.append(facts)
        print(
            f"{name}: PostgreSQL {facts.version}, schema {facts.schema}, slots {ranges(facts.slots)}, "
            f"about {facts.tasks} tasks and {facts.finished} finished ones"
        )
        if facts.begun is not None:
            print(f"  {_told(at, facts.begun)}")
    if None in found:
        return 1
    if len(urls) > 1:
        try:
            nowhere = stores.fitting(urls, found).unknown
        except StoreError as error:
            fail(str(error), 1)
        if nowhere:
            print(f"nobody works on the slots {ranges(nowhere)}, which are in no store")
            return 1
    return 0


def _told(store: int, begun: stores.Begun) -> str:
    """How far a move is, and what to do if nobody is at it."""
    first, last = min(begun.slots), max(begun.slots)
    means = {
        "copying": f"still in store {store}, being copied",
        "fenced": "in neither store, and safe here until nodes take them back",
        "handing": f"perhaps in store {begun.to} already",
        "moved": f"in store {begun.to}; their old rows are still here",
    }
    said = f"slots {ranges(begun.slots)} are on their way to store {begun.to}: {means[begun.state]}"
    if begun.at_work:
        return f"{said}; the move is under way"
    command = f"duly store move-slots --from {store} --to {begun.to} --slots {first}-{last}"
    ends = "finishes it" if begun.state == "moved" else "finishes it, and with --undo takes it back"
    return f"{said}. Nobody is at it: {command} {ends}"


def _move(args: argparse.Namespace) -> int:
    """duly store move-slots."""
    read = settings.read(args)
    urls = settings.need("database_urls", read.stores)
    redis_url = settings.need("redis_url", read.redis_url)
    for number in (args.from_store, args.to_store):
        if not 0 <= number < len(urls):
            fail(f"there is no store {number}: database_urls names {len(urls)}")
    if args.from_store == args.to_store:
        fail("--from and --to are the same store")
    slots = f"the slots {ranges(args.slots)}"
    try:
        if args.undo:
            whole = asyncio.run(_undo(urls, redis_url, args))
            left = "" if whole else f"; store {args.to_store} does not answer and keeps its copies"
            print(f"{slots} stay in store {args.from_store}{left}")
            return 0
        done = asyncio.run(_run(urls, redis_url, args))
    except (StoreError, *TROUBLE) as error:
        fail(str(error) or "Redis does not answer", 1)
    print(
        f"moved {slots} with {done.tasks} tasks from store {args.from_store} to "
        f"store {args.to_store}; they stood still for {done.fenced_s:.2f} s"
    )
    return 0


async def _run(urls: tuple[str, ...], redis_url: str, args: argparse.Namespace) -> moving.Moved:
    source, target = _ends(urls, args)
    async with _nodes(redis_url, len(urls)) as nodes:
        return await moving.move(source, target, args.slots, _SETTLE_S, nodes)


async def _undo(urls: tuple[str, ...], redis_url: str, args: argparse.Namespace) -> bool:
    source, target = _ends(urls, args)
    async with _nodes(redis_url, len(urls)) as nodes:
        return await moving.undo(source, target, args.slots, nodes)


def _ends(urls: tuple[str, ...], args: argparse.Namespace) -> list[MoveSession]:
    return [MoveSession(urls[number], number) for number in (args.from_store, args.to_store)]


class _Nodes:
    """Those of the cluster, while slots move."""

    def __init__(self, members: Members, stores_count: int) -> None:
        self._members = members
        self._stores = frozenset(range(stores_count))

    async def ready(self) -> None:
        """Raises `MoveError` unless every live node works on every store."""
        seen: dict[str, set[int]] = {}
        for name in await self._members.registered():
            seen.setdefault(name.partition("/")[0], set()).add(store_of(name))
        for process, works_on in sorted(seen.items()):
            if works_on != self._stores:
                missing = ranges(self._stores - works_on)
                raise MoveError(
                    f"node {process} does not work on store {missing}: give all nodes the same database_urls"
                )

    async def tell(self) -> None:
        """Have them look at once what each store holds."""
        try:
            await self._members.announce()
        except TROUBLE as error:
            print(f"the nodes notice it later: {error}", file=sys.stderr)


@asynccontextmanager
async def _nodes(redis_url: str, stores_count: int) -> AsyncIterator[_Nodes]:
    members = Members(redis_url, "store-command", _TIMEOUT_S, _TIMEOUT_S)
    try:
        yield _Nodes(members, stores_count)
    finally:
        await members.close()
