"""duly store: whether the databases of a cluster fit together, and moving tasks from one to another."""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable
from typing import Any

from duly.nodes.cli import settings
from duly.nodes.cli.errors import fail
from duly.storage import moving, stores
from duly.storage.errors import StoreError
from duly.storage.layout import ranges
from duly.storage.members import Members, store_of
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
        "same command finishes it.",
        parents=[settings.flags(["database_urls", "redis_url"])],
    )
    for name, text in (("from", "that has them"), ("to", "that is to have them")):
        move.add_argument(f"--{name}", dest=f"{name}_store", type=int, required=True, metavar="NUMBER",
                          help=f"the store {text}: its place in database_urls, from 0 on")  # fmt: skip
    move.add_argument(
        "--slots", type=_slots, required=True, metavar="A-B", help="which, as 64-127 or 5"
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
    urls = settings.read(args).stores
    if not urls:
        fail("database_urls is not set: give --database-urls or DULY_DATABASE_URLS")
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
        moving_too = f" ({ranges(facts.moving)} on the way)" if facts.moving else ""
        print(
            f"{name}: PostgreSQL {facts.version}, schema {facts.schema}, slots {ranges(facts.slots)}"
            f"{moving_too}, about {facts.tasks} tasks and {facts.finished} finished ones"
        )
    if None in found:
        return 1
    if len(urls) > 1:
        try:
            stores.fitting(urls, found)
        except StoreError as error:
            fail(str(error), 1)
    return 0


def _move(args: argparse.Namespace) -> int:
    """duly store move-slots."""
    read = settings.read(args)
    urls = read.stores
    for number in (args.from_store, args.to_store):
        if not 0 <= number < len(urls):
            fail(f"there is no store {number}: database_urls names {len(urls)}")
    if args.from_store == args.to_store:
        fail("--from and --to are the same store")
    if read.redis_url is None:
        fail("redis_url is not set: give --redis-url or DULY_REDIS_URL")
    try:
        done = asyncio.run(_run(urls, read.redis_url, args))
    except (StoreError, *TROUBLE) as error:
        fail(str(error) or "Redis does not answer", 1)
    print(
        f"moved the slots {ranges(args.slots)} with {done.tasks} tasks from store {args.from_store} to "
        f"store {args.to_store}; they stood still for {done.fenced_s:.2f} s"
    )
    return 0


async def _run(urls: tuple[str, ...], redis_url: str, args: argparse.Namespace) -> moving.Moved:
    members = Members(redis_url, "store-command", _TIMEOUT_S, _TIMEOUT_S)

    async def tell() -> None:
        try:
            await members.announce()
        except TROUBLE as error:
            print(f"the nodes notice it later: {error}", file=sys.stderr)

    try:
        _see_nodes(await members.registered(), len(urls))
        stores.fitting(urls, [await stores.facts(url) for url in urls])
        source, target = urls[args.from_store], urls[args.to_store]
        return await moving.move(source, target, args.slots, args.to_store, _SETTLE_S, tell)
    finally:
        await members.close()


def _see_nodes(names: Iterable[str], count: int) -> None:
    """Every live node has to work on every store."""
    seen: dict[str, set[int]] = {}
    for name in names:
        seen.setdefault(name.partition("/")[0], set()).add(store_of(name))
    for process, works_on in sorted(seen.items()):
        if works_on != set(range(count)):
            missing = ranges(set(range(count)) - works_on)
            fail(
                f"node {process} does not work on store {missing}: give all nodes the same database_urls",
                1,
            )
