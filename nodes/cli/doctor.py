"""duly doctor: look at what a cluster stands on, and say what is wrong."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from duly.actors.node_info import SCHEMA, schema_of
from duly.nodes.cli import settings
from duly.nodes.settings import Settings
from duly.storage import checkup, cluster_checkup, stores
from duly.storage.checkup import Finding
from duly.storage.cluster_url import is_cluster
from duly.storage.members import Members, store_of
from duly.storage.redis import TROUBLE

_NAMES = ["database_url", "database_urls", "redis_url", "lease_redis_urls", "db_pool_size",
          "db_core_pool_size"]  # fmt: skip
_MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "doctor",
        help="look at PostgreSQL, Redis and the lease servers, and say what is wrong",
        description="Look at versions, durability settings, the clock, the schema, and whether the lease "
        "servers make a majority; change nothing. Exit code 1 if something is bad, not for a warning.",
        parents=[settings.flags(_NAMES)],
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    read = settings.read(args)
    settings.need("database_url", read.stores)
    settings.need("redis_url", read.redis_url)
    found = asyncio.run(_look(read))
    for one in found:
        if args.json:
            sys.stdout.write(msgspec.json.encode(one._asdict()).decode() + "\n")
        else:
            advice = f"\n      {one.advice}" if one.advice else ""
            print(f"{_MARKS[one.level]}  {one.about}: {one.said}{advice}")
    bad = sum(one.level == "bad" for one in found)
    if not args.json:
        warnings = sum(one.level == "warn" for one in found)
        print(f"{bad} bad, {warnings} to look at, {len(found) - bad - warnings} as they should be")
    return 1 if bad else 0


async def _look(read: Settings) -> list[Finding]:
    pool = read.db_pool_size + read.db_core_pool_size + 1  # one hears of tasks submitted in SQL
    many = len(read.stores) > 1
    asked = [
        checkup.postgres(url, stores.name(url, at) if many else "PostgreSQL", pool, time.time)
        for at, url in enumerate(read.stores)
    ]
    found = [one for each in await asyncio.gather(*asked) for one in each]
    assert read.redis_url is not None
    if is_cluster(read.redis_url):
        said, answers = await cluster_checkup.look(read.redis_url, "Redis")
        run_ids = []
    else:
        said, run_id = await checkup.redis(read.redis_url, "Redis", streams=True)
        answers, run_ids = run_id is not None, [run_id]
    found += said
    if read.lease_redis_urls:
        each = await asyncio.gather(*(
            checkup.redis(url, f"lease server {at}", streams=False)
            for at, url in enumerate(read.lease_redis_urls)
        ))  # fmt: skip
        found += [one for findings, _ in each for one in findings]
        run_ids = [one for _, one in each]
    found += checkup.leases(run_ids)
    if answers:
        found += await _nodes(read.redis_url)
    return found


async def _nodes(redis_url: str) -> list[Finding]:
    """Whether somebody works."""
    members = Members(redis_url, "doctor", 4.0, 5.0)
    try:
        known = await members.registered()
        silent_s = {name: await members.silent_s(name) for name in known if not store_of(name)}
    except TROUBLE as error:
        return [Finding("bad", "nodes", str(error) or "Redis does not answer")]
    finally:
        await members.close()
    alive = [name for name, silent in silent_s.items() if silent is not None and silent < 10]
    return [about_nodes({name: known[name] for name in alive})]


def about_nodes(alive: Mapping[str, bytes]) -> Finding:
    """Of the live nodes, by what each says of itself: whether there are any, all of this version or of a newer one."""
    if not alive:
        return Finding("warn", "nodes", "none lives: nothing is fired", "start one with duly node")
    older = sorted(name for name, said in alive.items() if schema_of(said) < SCHEMA)
    if older:
        said = f"{len(alive)} alive, of an older version are: {', '.join(older)}"
        return Finding(
            "warn", "nodes", said, "finish the upgrade: replace them by nodes of this version"
        )
    return Finding("ok", "nodes", f"{len(alive)} alive")
