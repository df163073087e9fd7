"""The reports streams, as the nodes read them: what workers say of their tasks' outcomes."""

from collections.abc import Iterable, Sequence

from redis.exceptions import ResponseError

from duly.storage import keys
from duly.storage.known_queues import KnownQueues
from duly.storage.node_link import NodeLink
from duly.storage.redis import call, server_time_s, text
from duly.storage.stream_facts import Report, fields, is_missing, pairs

PAGE = 500
_SCAN_PAGES = 20


class Reports:
    """One node's access to the reports of every queue. Methods raise `redis.TROUBLE`."""

    def __init__(self, link: NodeLink, queues: KnownQueues) -> None:
        self._link = link
        self._queues = queues

    async def read(
        self, queues: Sequence[str], *, block_ms: int, again: bool = False
    ) -> list[Report]:
        """New reports, waiting up to `block_ms`; `again`: those read before and not settled."""
        words: list[str | int] = ["XREADGROUP", "GROUP", self._link.group, self._link.node_id]
        words += ["COUNT", PAGE]
        streams, last = [keys.reports(queue) for queue in queues], "0" if again else ">"
        if self._link.reads is not None:
            answer = await self._link.reads.read(words, streams, last, 0 if again else block_ms)
        else:
            if not again:
                words += ["BLOCK", block_ms]
            words += ["STREAMS", *streams, *([last] * len(queues))]
            limit_s = block_ms / 1000 + self._link.timeout_s
            answer = await call(self._link.reader, *words, timeout_s=limit_s)
        names = {stream.encode(): queue for stream, queue in zip(streams, queues, strict=True)}
        found = [
            Report(names[stream], entry_id, fields(words))
            for stream, entries in answer or ()
            for entry_id, words in entries
        ]
        return found if self._link.holds is None else await self._own(found)

    async def _own(self, found: list[Report]) -> list[Report]:
        """Without the reports of other stores' tasks: they stay in the stream, for those to read."""
        own = [one for one in found if self._link.is_own(one.fields.get(b"id"))]
        if len(own) < len(found):
            kept = {(one.queue, one.entry_id) for one in own}
            others: dict[str, list[bytes]] = {}
            for one in found:
                if (one.queue, one.entry_id) not in kept:
                    others.setdefault(one.queue, []).append(one.entry_id)
            for queue, entry_ids in others.items():
                await self.pass_over(queue, entry_ids)
        return own

    async def pass_over(self, queue: str, entry_ids: Sequence[bytes]) -> None:
        """These reports are of other stores' tasks."""
        await self._link.command("XACK", keys.reports(queue), self._link.group, *entry_ids)

    async def unread(self, queue: str, min_age_ms: int) -> list[Report]:
        """Of several stores: reports of own tasks that are in the stream for so long, the oldest first.

        They may have been passed over while their slot moved here.
        """
        stream = keys.reports(queue)
        now_s, _ = await server_time_s(self._link.client, stream, timeout_s=self._link.timeout_s)
        found: list[Report] = []
        after, end = "-", str(now_s * 1000 + 1000 - min_age_ms)
        for _ in range(_SCAN_PAGES):
            rows = await self._link.command("XRANGE", stream, after, end, "COUNT", PAGE)
            reports = [Report(queue, entry_id, fields(words)) for entry_id, words in rows]
            found += [one for one in reports if self._link.is_own(one.fields.get(b"id"))]
            if len(rows) < PAGE or len(found) >= PAGE:
                break
            after = f"({text(rows[-1][0])}"
        return found

    async def take_over(self, queue: str, idle_ms: int) -> None:
        """Make reports that a dead node had read and not settled this node's own."""
        after: str | bytes = "0-0"
        while True:
            answer = await self._link.command(
                "XAUTOCLAIM", keys.reports(queue), self._link.group, self._link.node_id, idle_ms, after,
                "COUNT", 200, "JUSTID",
            )  # fmt: skip
            after = answer[0]
            if after == b"0-0":
                return

    async def settle(
        self, queue: str, items: Iterable[tuple[bytes, str | bytes, str | bytes]]
    ) -> None:
        """Forget reports (entry id, task id, token) whose outcome is recorded or stale."""
        await self._link.settle(keys.reports(queue), self._link.group, queue, items)

    async def mark(self, queue: str) -> tuple[bytes | None, bytes]:
        """(oldest report that is not settled, id of the newest ever added) of a queue."""
        first = await self._first(queue)
        try:
            info = await self._link.command("XINFO STREAM", keys.reports(queue))
        except ResponseError as error:
            if not is_missing(error):
                raise
            await self._queues.announce(queue)
            return None, b"0-0"
        return first, pairs(info)["last-generated-id"]

    async def _first(self, queue: str) -> bytes | None:
        """The oldest that is not settled; of several stores, of this store's tasks."""
        if self._link.holds is not None:
            own = await self.unread(queue, 0)
            return own[0].entry_id if own else None
        first = await self._link.command("XRANGE", keys.reports(queue), "-", "+", "COUNT", 1)
        return first[0][0] if first else None

    async def forget_nodes(self, queue: str, idle_ms: int) -> None:
        """Remove the names of nodes that have not read reports for so long and hold none."""
        try:
            rows = await self._link.command(
                "XINFO CONSUMERS", keys.reports(queue), self._link.group
            )
        except ResponseError as error:
            if not is_missing(error):
                raise
            return
        for fact in map(pairs, rows):
            if fact["idle"] >= idle_ms and fact["name"] != self._link.node_id.encode():
                args = [self._link.group, fact["name"]]
                await self._link.scripts.run("forget_consumer", [keys.reports(queue)], args)
