"""What people ask Redis: who works, and where a task is. Reads only; nothing is made or mended.

A look at a queue is one call, and one more for the signs of life of its workers. All workers take
two calls for each queue that nodes know, and two for those of other queues; no key is searched for.
"""

import asyncio
from collections.abc import Container, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import NoPermissionError

from duly.storage import keys
from duly.storage.redis import AnyRedis, PrimaryAwayError, Scripts, Word, call, text
from duly.storage.redis_cluster import ClusterClient
from duly.storage.stream_facts import pairs

_QUEUES_AT_ONCE = 16


class Progress(msgspec.Struct):
    """How far an attempt is, as its worker tells: the share that is done, 0 to 1."""

    id: str
    token: int
    share: float
    text: str | None = None


class Liveness(msgspec.Struct):
    """What a worker's liveness key tells. A worker in another language may leave things out."""

    host: str | None = None
    pid: int | None = None
    queues: list[str] | None = None
    concurrency: int = 1
    running: int | None = None
    sdk: str | None = None
    progress: list[Progress] = []
    unknown_types: list[str] = []
    """Of tasks that it gave back, since it has no handler for them."""
    unreadable: list[str] = []
    """Types of tasks that it gave back, since it cannot decode them, each with the reason."""


class Worker(NamedTuple):
    """A consumer of a queue's group.

    `pending`: entries it holds. `silent_s`: seconds since it was last heard of. `says` None: it has
    given no sign of life for `keys.LIVENESS_TTL_MS`, so that it counts as gone.
    """

    id: str
    pending: int
    silent_s: float
    says: Liveness | None


class QueueSight(NamedTuple):
    """A queue's stream: entries that no worker has fetched, those who fetch, and where a task is.

    `in_stream`: its entry is there. `worker`: who has fetched it, `held_s` seconds ago.
    """

    backlog: int
    workers: list[Worker]
    in_stream: bool
    worker: str | None
    held_s: float

    def fetched_at(self, now: datetime) -> datetime:
        """When its worker fetched the task."""
        return now - timedelta(seconds=self.held_s)

    @property
    def alive(self) -> list[Worker]:
        """The workers that give signs of life."""
        return [one for one in self.workers if one.says is not None]

    @property
    def concurrency(self) -> int:
        """How many tasks the live workers run at once."""
        return sum(max(0, one.says.concurrency) for one in self.workers if one.says is not None)


class Sight:
    """Looks at the streams with the client of a node. Methods raise `redis.TROUBLE`."""

    def __init__(self, client: AnyRedis, scripts: Scripts, timeout_s: float) -> None:
        self._client = client
        self._scripts = scripts
        self._timeout_s = timeout_s

    async def queue(self, queue: str, task_id: str = "", token: int = 0) -> QueueSight:
        """One queue; and where the task `task_id` is that was claimed under `token`."""
        names = [keys.tasks(queue), keys.inflight(queue), keys.entries(queue)]
        args: list[Word] = [keys.WORKERS_GROUP, task_id, token]
        entries, delivered, rows, entry, consumer, idle_ms = await self._scripts.run(
            "look", names, args
        )
        workers = await self._workers(rows)
        holder = _shown(text(consumer)) if consumer else None
        backlog = max(0, entries - delivered)
        return QueueSight(backlog, workers, bool(entry), holder, idle_ms / 1000)

    async def workers(self) -> list[Worker]:
        """The workers of all queues, each once, by id: also of those that have never had a task.

        Nodes do not know such a queue's name. Its workers are found by the control channels to which they listen, if
        Redis lets this user ask for those.
        """
        limit = asyncio.Semaphore(_QUEUES_AT_ONCE)

        async def of(queue: str) -> list[Worker]:
            async with limit:
                try:
                    return (await self.queue(queue)).workers
                except PrimaryAwayError:
                    return []  # of a cluster; who works for other queues too is seen there

        names = await call(self._client, "SMEMBERS", keys.QUEUES, timeout_s=self._timeout_s)
        found: dict[str, Worker] = {}
        for crew in await asyncio.gather(*(of(text(name)) for name in names)):
            for one in crew:
                before = found.get(one.id, one._replace(pending=0))
                silent_s = min(before.silent_s, one.silent_s)
                pending = before.pending + one.pending
                found[one.id] = one._replace(pending=pending, silent_s=silent_s)
        found |= {one.id: one for one in await self._listening(found)}
        return [found[name] for name in sorted(found)]

    async def _listening(self, found: Container[str]) -> list[Worker]:
        """The live workers besides those `found` that listen on their control channel."""
        try:
            names = await self._channels()
        except NoPermissionError:
            return []  # the others are seen all the same
        ids = [text(name)[len(keys.control("")) :] for name in names]
        others = [one for one in ids if _shown(one) not in found]
        return [
            Worker(_shown(one), 0, _renewed_s(left_ms, keys.LIVENESS_TTL_MS), _says(value))
            for one, (value, left_ms) in zip(others, await self._signs(others), strict=True)
            if value
        ]

    async def _channels(self) -> list[bytes]:
        """The control channels that somebody listens to; each server of a cluster knows its own listeners."""
        words, timeout_s = ("PUBSUB CHANNELS", keys.control("*")), self._timeout_s
        if isinstance(self._client, ClusterClient):
            answers = await self._client.everywhere(*words, timeout_s=timeout_s)
            return sorted({name for answer in answers for name in answer})
        channels: list[bytes] = await call(self._client, *words, timeout_s=timeout_s)
        return channels

    async def _signs(self, ids: Sequence[str]) -> list[tuple[bytes, int]]:
        """For each worker (what its liveness key holds, b"" = gone; milliseconds that it lives on)."""
        if not ids:
            return []
        names = [keys.worker(one) for one in ids]
        if isinstance(self._client, ClusterClient):
            return await self._cluster_signs(self._client, names)
        signs = await self._scripts.run("signs", names, [])
        return [(value, left_ms) for value, left_ms in signs]

    async def _cluster_signs(
        self, cluster: ClusterClient, names: Sequence[str]
    ) -> list[tuple[bytes, int]]:
        asked = [(word, name) for word in ("GET", "PTTL") for name in names]
        answers = [one.value for one in await cluster.each(asked, self._timeout_s)]
        errors = [one for one in answers if isinstance(one, Exception)]
        for error in errors:
            if not isinstance(error, PrimaryAwayError):
                raise error
        found = zip(answers[: len(names)], answers[len(names) :], strict=True)
        # What is on a primary that is away is not seen.
        return [
            (b"", 0) if value in errors or left_ms in errors else (value or b"", left_ms)
            for value, left_ms in found
        ]

    async def _workers(self, rows: Sequence[Any]) -> list[Worker]:
        facts = [(text(fact["name"]), fact) for fact in map(pairs, rows)]
        crew = [(name, fact) for name, fact in facts if not name.startswith(keys.MARK)]
        signs = await self._signs([name for name, _ in crew])
        return [
            Worker(_shown(name), fact["pending"], _renewed_s(left_ms, fact["idle"]), _says(value))
            for (name, fact), (value, left_ms) in zip(crew, signs, strict=True)
        ]


def _shown(name: str) -> str:
    """A name as text that can be answered: what is not UTF-8 in it is replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _renewed_s(left_ms: int, idle_ms: int) -> float:
    """Since it renewed its liveness key, if that has the protocol's time to live; at most `idle_ms`."""
    if 0 <= left_ms <= keys.LIVENESS_TTL_MS:
        idle_ms = min(idle_ms, keys.LIVENESS_TTL_MS - left_ms)
    return idle_ms / 1000


def _says(value: bytes) -> Liveness | None:
    if not value:
        return None
    try:
        return msgspec.json.decode(value, type=Liveness)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Liveness()  # a foreign worker's own idea of liveness
