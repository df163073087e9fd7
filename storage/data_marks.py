"""What shows whether Redis lost data: which run of each server it is, and a sentinel that is gone with them.

A Redis Cluster has a sentinel on each primary: any of them may lose its data, or be replaced by a replica that
has not heard of the last writes.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from duly.storage import keys
from duly.storage.node_link import NodeLink
from duly.storage.redis import TROUBLE, call
from duly.storage.redis_cluster import ClusterClient

Mark = tuple[bytes, bytes | None]
"""(The server's run id, our sentinel): a change of either may mean lost data."""

ONLY = ""
"""In the place of a primary's name, where there is one server."""

_PROBE_TTL_MS = 60_000
_PROBE_S = 1.5  # of one primary of several: whoever asks for all waits for 2 s


class DataMarks(NamedTuple):
    """The marks as they stand now, by primary (`host:port`)."""

    marks: Mapping[str, Mark]
    away: frozenset[str]
    """Primaries that do not answer, or take no writes."""

    def lost_since(self, before: "DataMarks") -> bool:
        """Whether something may have been lost: a mark is another one, or of a primary that was none before."""
        return any(before.marks.get(name) != mark for name, mark in self.marks.items())

    def kept_from(self, before: "DataMarks | None") -> "DataMarks":
        """With the last marks of those that are away: they may come back with all they had."""
        if before is None or not self.away:
            return self
        old = {name: mark for name, mark in before.marks.items() if name in self.away}
        return DataMarks({**old, **self.marks}, self.away)


async def look(link: NodeLink, cluster: ClusterClient) -> DataMarks:
    """The marks of a cluster, made where there are none. Raises one of `TROUBLE` if every primary is away."""
    primaries = await cluster.map.primaries()
    cluster.trusted = set(primaries)  # and from now on less those that fail

    async def of(key: str) -> Mark | Exception:
        try:
            mark = await one(link, key)
            if mark[1] is None:
                await set_sentinel(link, key)
                mark = await one(link, key)
        except TROUBLE as error:
            return error
        return mark

    names = list(primaries)
    found = await asyncio.gather(*(of(keys.alive_on(tag)) for _, tag in primaries.values()))
    marks = {name: mark for name, mark in zip(names, found, strict=True) if isinstance(mark, tuple)}
    errors = [one for one in found if isinstance(one, Exception)]
    if errors and not marks:
        raise errors[0]
    cluster.trusted &= marks.keys()
    return DataMarks(marks, frozenset(names) - marks.keys())


async def one(link: NodeLink, key: str) -> Mark:
    """The mark of the server that has `key`. Raises ReadOnlyError if it takes no writes."""
    run_id, sentinel = await link.scripts.run("data_mark", [key], [])
    return run_id, sentinel


async def set_sentinel(link: NodeLink, key: str) -> None:
    """Put the sentinel that is gone when the data are, if it is; each one is unlike the last."""
    await link.command("SET", key, f"{link.node_id} {secrets.token_hex(8)}", "NX")


async def probe(link: NodeLink) -> dict[str, str]:
    """Try a write, of a kind that needs memory, on every primary; answers why which of them are away.

    Raises one of `TROUBLE` if none takes it.
    """
    words = (link.node_id, "PX", _PROBE_TTL_MS)
    if not isinstance(link.client, ClusterClient):
        await link.command("SET", keys.PROBE, *words)
        return {}
    primaries = await link.client.map.primaries()
    limit_s = min(_PROBE_S, link.timeout_s)
    sets = (
        call(link.client, "SET", keys.probe_on(tag), *words, timeout_s=limit_s)
        for _, tag in primaries.values()
    )
    answers = await asyncio.gather(*sets, return_exceptions=True)
    away: dict[str, str] = {}
    for name, answer in zip(primaries, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, TROUBLE) or len(away) == len(primaries) - 1:
                raise answer
            away[name] = str(answer) or type(answer).__name__
    return away
