"""The workers of each queue, as the nodes look after them: who lives, and what each one holds."""

import secrets
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from duly.storage import keys
from duly.storage.known_queues import KnownQueues
from duly.storage.node_link import NodeLink
from duly.storage.redis import PrimaryAwayError, text
from duly.storage.redis_cluster import ClusterClient
from duly.storage.stream_facts import Consumer, Crew, Held, fields, is_missing, pairs

_SIGNS_MAX = 10_000


class Crews:
    """One node's access. Methods raise `redis.TROUBLE`."""

    def __init__(self, link: NodeLink, queues: KnownQueues) -> None:
        self._link = link
        self._queues = queues
        self._last_signs: dict[str, bytes] = {}

    async def of(self, queue: str) -> Crew:
        """The workers of a queue, dead or alive. The group is made anew if it is gone.

        Without marks if the queue's name is gone, too: another node has forgotten it.
        """
        try:
            rows = await self._link.command(
                "XINFO CONSUMERS", keys.tasks(queue), keys.WORKERS_GROUP
            )
        except ResponseError as error:
            if not is_missing(error):
                raise
            if not await self._queues.is_known(queue):
                return Crew([], frozenset())
            await self._queues.announce(queue)
            rows = []
        facts = {text(fact["name"]): fact for fact in map(pairs, rows)}
        marks = frozenset(name for name in facts if name.startswith(keys.MARK))
        if not marks:
            marks = frozenset({f"{keys.MARK}{secrets.token_hex(8)}"})
            await self._link.command(
                "XGROUP", "CREATECONSUMER", keys.tasks(queue), keys.WORKERS_GROUP, *marks
            )
        names = [name for name in facts if name not in marks]
        signs = await self._signs(names)
        workers = [
            Consumer(name, facts[name]["pending"], facts[name]["idle"], sign)
            for name, sign in zip(names, signs, strict=True)
        ]
        return Crew(workers, marks)

    async def _signs(self, names: Sequence[str]) -> list[bytes | None]:
        """What the liveness key of each holds; None = gone."""
        if not names:
            return []
        cluster = self._link.client
        if not isinstance(cluster, ClusterClient):
            found: list[bytes | None] = await self._link.command("MGET", *map(keys.worker, names))
            return found
        gets = [("GET", keys.worker(name)) for name in names]
        answers = await cluster.each(gets, self._link.timeout_s)
        signs: list[bytes | None] = []
        for name, (value, server) in zip(names, answers, strict=True):
            if isinstance(value, Exception) and not isinstance(value, PrimaryAwayError):
                raise value
            if isinstance(value, Exception) or (value is None and server not in cluster.trusted):
                # Its primary is away, or has taken over a moment ago and may not have heard of the sign.
                signs.append(self._last_signs.get(name, b""))
            else:
                signs.append(value)
                self._last_signs.pop(name, None)
                if value is not None:
                    self._last_signs[name] = value
        while len(self._last_signs) > _SIGNS_MAX:
            del self._last_signs[next(iter(self._last_signs))]
        return signs

    async def held_by(self, queue: str, consumer: str, min_idle_ms: int, limit: int) -> list[Held]:
        """Entries that a consumer has had for at least `min_idle_ms`, the oldest first."""
        held: list[Held] = []
        after = "-"
        while True:
            rows = await self._link.command(
                "XPENDING", keys.tasks(queue), keys.WORKERS_GROUP, "IDLE", min_idle_ms, after, "+",
                limit, consumer,
            )  # fmt: skip
            held += await self._held(queue, rows)
            if held or len(rows) < limit:
                return held
            after = f"({text(rows[-1][0])}"  # all of them are of other stores' tasks

    async def _held(self, queue: str, rows: Sequence[Any]) -> list[Held]:
        held: list[Held] = []
        for entry_id, _, idle_ms, _ in rows:
            found = await self._link.command("XRANGE", keys.tasks(queue), entry_id, entry_id)
            said = fields(found[0][1]) if found else {}
            task_id, token = said.get(b"id", b""), said.get(b"token", b"")
            if not self._link.is_own(task_id):
                continue
            held.append(
                Held(entry_id, task_id.decode(errors="replace"), token.decode(errors="replace"),
                     idle_ms)
            )  # fmt: skip
        return held

    async def forget_worker(self, queue: str, consumer: str) -> None:
        """Remove a dead worker's name, if nothing is pending there."""
        args = [keys.WORKERS_GROUP, consumer]
        await self._link.scripts.run("forget_consumer", [keys.tasks(queue)], args)
