"""Peers in turns: for each run of each scenario every peer is started on empty servers and ended."""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from redis.asyncio import Redis

from benchmarks.environments import CannotInstallError
from benchmarks.peers.peer import Peer, Servers
from benchmarks.peers.work import Work
from benchmarks.records import Record, print_line, record, tell
from benchmarks.rig import connected, embedded_servers
from duly.nodes.embedded import EmbeddedServers

_numbers = itertools.count()


def install(peers: Sequence[Peer]) -> tuple[list[Peer], list[str]]:
    """Those that could be installed, and what is wrong with the others. Tells each one's version."""
    ready, wrong = [], []
    for peer in peers:
        tell(f"looking for {peer.traits.name} ...")
        try:
            tell(f"{peer.install()}; records of an outcome: {peer.traits.records}")
            ready.append(peer)
        except CannotInstallError as error:
            wrong.append(f"{peer.traits.name} is left out: {error}")
    return ready, wrong


async def compare(
    peers: Sequence[Peer], works: Mapping[str, Work], runs: int
) -> tuple[list[Record], list[str]]:
    """Every run's record, and what went wrong in runs that have none."""
    records: list[Record] = []
    wrong: list[str] = []
    async with embedded_servers() as servers:
        for (name, work), number in itertools.product(works.items(), range(runs)):
            for peer in peers if number % 2 == 0 else reversed(peers):
                try:
                    async with _empty(servers) as empty, peer.running(empty) as running:
                        outcome = await work.run(running, peer.traits)
                except (TimeoutError, RuntimeError) as error:
                    wrong.append(f"{name}, {peer.traits.name}: {error}")
                    tell(wrong[-1])
                    continue
                records.append(record(name, outcome, peer.traits.name))
                print_line(records[-1])
    return records, wrong


@asynccontextmanager
async def _empty(servers: EmbeddedServers) -> AsyncIterator[Servers]:
    """A new database, and Redis without a key, with nothing left to do of what was before."""
    name = f"bench_{next(_numbers)}"
    async with Redis.from_url(servers.redis_url, protocol=2, socket_timeout=10) as redis:
        await redis.flushall()
    async with connected(servers.database_url) as database:
        await database.execute("checkpoint")
        await database.execute(f"create database {name}")
        try:
            url = urlsplit(servers.database_url)._replace(path=f"/{name}").geturl()
            yield Servers(url, servers.redis_url)
        finally:
            await database.execute(f"drop database {name} with (force)")
