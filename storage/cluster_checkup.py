"""What a Redis Cluster is set to, and what of it would break a promise of Duly: for `duly doctor`."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ResponseError

from duly.storage import checkup
from duly.storage.checkup import Finding
from duly.storage.redis import TROUBLE, PrimaryAwayError, connect_any
from duly.storage.redis_cluster import ClusterClient

_TIMEOUT_S = 5.0
_SLOTS = 16_384
_NEEDS_ALL = "cluster-require-full-coverage"


async def look(url: str, about: str) -> tuple[list[Finding], bool]:
    """Each primary, and the cluster as a whole; and whether a primary answers."""
    client = connect_any(url, name="duly-doctor")
    assert isinstance(client, ClusterClient)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            primaries = await client.map.primaries()
        looks = [
            _primary(client, server, f"{about} {name}") for name, (server, _) in primaries.items()
        ]
        each = await asyncio.gather(*looks)
        found = [one for findings, _ in each for one in findings]
        found += await _whole(client, about)
    except TROUBLE as error:
        said = str(error) or "no answer"
        return [Finding("bad", about, said, "check the URL and the password")], False
    finally:
        await client.aclose()
    return found, any(answered for _, answered in each)


async def _primary(
    client: ClusterClient, server: ClusterNode, about: str
) -> tuple[list[Finding], bool]:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            info: dict[str, Any] = await client.run(server, ("INFO",))
            before = time.monotonic()
            await client.run(server, ("PING",))
            took_ms = (time.monotonic() - before) * 1000
    except TROUBLE as error:
        said = str(error) or "no answer"
        return [Finding("bad", about, said, "the queues whose keys it has wait for it")], False
    found = checkup.server(info, took_ms, about, streams=True)
    if not int(info.get("connected_slaves", 0)):
        said = "it has no replica: if it fails, its queues wait until it is back"
        found.append(Finding("warn", about, said, "give it a replica"))
    return found, True


async def _whole(client: ClusterClient, about: str) -> list[Finding]:
    async with asyncio.timeout(_TIMEOUT_S):
        info: dict[str, str] = await client.anywhere("CLUSTER INFO")
        try:
            set_to: dict[str, str] = await client.anywhere("CONFIG GET", _NEEDS_ALL)
        except PrimaryAwayError:
            raise
        except ResponseError:
            set_to = {}  # a managed service does not tell
    needs_all = set_to.get(_NEEDS_ALL) == "yes"
    return [Finding(level, about, said, advice) for level, said, advice in _said(info, needs_all)]


def _said(info: dict[str, str], needs_all: bool) -> Iterator[tuple[checkup.Level, str, str | None]]:
    served = int(info["cluster_slots_ok"])
    if info["cluster_state"] != "ok" or served < _SLOTS:
        yield (
            "bad",
            f"{served} of {_SLOTS} slots are served; the cluster's state is {info['cluster_state']}",
            "queues whose keys are in the other slots wait: see CLUSTER NODES",
        )
    else:
        yield "ok", "all slots are served", None
    if needs_all:
        yield (
            "warn",
            f"{_NEEDS_ALL} is yes: while one primary is away, no queue works",
            f"set {_NEEDS_ALL} no",
        )
