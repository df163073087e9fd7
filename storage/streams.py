"""The nodes' side of the conveyor: publish, find what is where, take out; and its parts."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import msgspec

from duly.storage import data_marks, keys
from duly.storage.claims import Claimed
from duly.storage.crews import Crews
from duly.storage.data_marks import DataMarks, Mark
from duly.storage.known_queues import KnownQueues
from duly.storage.node_link import NodeLink
from duly.storage.permits import Permits, Rate
from duly.storage.redis import Word, text
from duly.storage.redis_cluster import ClusterClient
from duly.storage.reports import Reports
from duly.storage.sight import Sight
from duly.storage.signals import Signals
from duly.storage.stream_facts import NOTHING_WAITS, Backlog, Place

_pack = msgspec.msgpack.Encoder().encode


def packed_tasks(tasks: Sequence[Claimed]) -> bytes:
    """Tasks as publish.lua takes them: one word for all, since the client spends more on words than on bytes."""
    return _pack([_texts(task) for task in tasks])


def _texts(task: Claimed) -> list[str]:
    due_ms = round(task.occurrence.timestamp() * 1_000_000) / 1000
    texts = [
        str(task.id), str(task.token), task.type, task.payload, f"{due_ms:.3f}",
        str(task.retry_count + 1), repr(task.timeout), task.queue, "1" if task.on_lost == "fail" else "0",
    ]  # fmt: skip
    if task.traceparent is not None or task.parent is not None:
        texts.append(task.traceparent or "")
    if task.parent is not None:
        texts.append(task.parent)
    return texts


class Streams:
    """Access of one node to every queue's streams. Methods raise `redis.TROUBLE`."""

    def __init__(
        self,
        url: str,
        node_id: str,
        timeout_s: float,
        *,
        store: int = 0,
        holds: Callable[[UUID], bool] | None = None,
    ) -> None:
        """`holds`: of several stores, whether a task is in this one, `store`; None: there is only one."""
        link = self._link = NodeLink(url, node_id, timeout_s, store=store, holds=holds)
        self.queues = KnownQueues(link)
        self.reports = Reports(link, self.queues)
        self.crews = Crews(link, self.queues)
        self.signals = Signals(link)
        self.sight = Sight(link.client, link.scripts, timeout_s)
        """Reads for people, over the same connections."""
        self.permits = Permits(link.scripts, node_id)

    @property
    def is_cluster(self) -> bool:
        """Whether the queues are spread over the primaries of a Redis Cluster."""
        return isinstance(self._link.client, ClusterClient)

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    async def publish(
        self,
        queue: str,
        tasks: Sequence[Claimed],
        waiting: int | None = None,
        rate: Rate | None = None,
        *,
        first: bool = False,
    ) -> Backlog:
        """Put claimed tasks of one queue into its stream; harmless if some are there already.

        `waiting`: what this node says of its due tasks for which there is no room. A rank, behind
        which the other nodes should publish nothing for `keys.WAITING_TTL_MS`; `NOTHING_WAITS`;
        or None, which leaves what it said before. With a `rate` no more go into the stream than it
        allows; how many were held back, the answer tells. `first`: by whoever has claimed them, so what
        was published under its token before is left to the reaper, also if it is in no stream now.
        """
        await self.queues.announce_once(queue)
        said = "" if waiting is None else "-" if waiting == NOTHING_WAITS else waiting
        words: list[Word] = [keys.WORKERS_GROUP, self._link.node_id, keys.WAITING_TTL_MS, said]
        words += ("", "") if rate is None else (rate.per_s, rate.burst)
        words += ("1" if first else "", packed_tasks(tasks) if tasks else "")
        names = [*_queue_keys(queue), keys.waiting(queue), keys.rate(queue)]
        answer = await self._link.scripts.run("publish", names, words)
        entries, delivered, others, lowest, held, wait_us = answer
        if delivered < 0:  # the group is gone: the next publish or read makes it anew
            await self.queues.announce(queue)
        return Backlog(entries, delivered, others, lowest if others else None, held, wait_us / 1e6)

    async def backlog(self, queue: str, waiting: int | None = None) -> Backlog:
        """How much waits in a queue's stream, and with other nodes; `waiting` as in `publish`."""
        return await self.publish(queue, [], waiting)

    async def locate(self, queue: str, tasks: Sequence[tuple[UUID, int]]) -> list[Place]:
        """Where these (id, token) are."""
        args: list[str | int] = [keys.WORKERS_GROUP]
        for task_id, token in tasks:
            args += (str(task_id), token)
        rows = await self._link.scripts.run("locate", _queue_keys(queue), args)
        return [Place(entry, text(consumer), idle_ms) for entry, consumer, idle_ms in rows]

    async def supersede(self, queue: str, task_id: UUID, token: int) -> str | None:
        """After a cancel: fence the task off with a higher token; answers who is running it."""
        args: list[Word] = [keys.WORKERS_GROUP, str(task_id), token]
        holder = await self._link.scripts.run("supersede", _queue_keys(queue), args)
        return text(holder) if holder else None

    async def settle(
        self, queue: str, items: Iterable[tuple[bytes, str | bytes, str | bytes]]
    ) -> None:
        """Take task entries (entry id or b"", task id, token) out of the stream."""
        await self._link.settle(keys.tasks(queue), keys.WORKERS_GROUP, queue, items)

    async def inflight_page(self, queue: str, cursor: int) -> tuple[int, list[tuple[str, str]]]:
        """A page of the in-flight hash: (next cursor, 0 at the end; (id, token) pairs)."""
        answer = await self._link.command("HSCAN", keys.inflight(queue), cursor, "COUNT", 200)
        found = {text(key): text(value) for key, value in dict(answer[1]).items()}
        return int(answer[0]), list(found.items())

    async def drop_entries(self, queue: str) -> None:
        """Forget the places of entries whose task is not in flight any more."""
        cursor: int | bytes = 0
        while True:
            cursor, found = await self._link.command(
                "HSCAN", keys.entries(queue), cursor, "COUNT", 200
            )
            if ids := list(dict(found)):
                names = [keys.inflight(queue), keys.entries(queue)]
                await self._link.scripts.run("drop_entries", names, ids)
            if int(cursor) == 0:
                return

    # Health

    async def data_mark(self) -> Mark:
        """The mark of the one server that there is.

        Raises ReadOnlyError if the server takes no writes: then no worker can show that it lives.
        """
        return await data_marks.one(self._link, keys.ALIVE)

    async def set_sentinel(self) -> None:
        """Put its sentinel, if there is none."""
        await data_marks.set_sentinel(self._link, keys.ALIVE)

    async def data_marks(self) -> DataMarks:
        """The marks of all primaries, made where there are none."""
        if isinstance(self._link.client, ClusterClient):
            return await data_marks.look(self._link, self._link.client)
        mark = await self.data_mark()
        if mark[1] is None:
            await self.set_sentinel()
            mark = await self.data_mark()
        return DataMarks({data_marks.ONLY: mark}, frozenset())

    async def probe(self) -> dict[str, str]:
        """Raise unless Redis answers and takes writes, also such as need memory.

        Of a cluster with several primaries one suffices; answers why others do not.
        """
        return await data_marks.probe(self._link)


def _queue_keys(queue: str) -> list[str]:
    return [keys.tasks(queue), keys.inflight(queue), keys.entries(queue)]
