"""The nodes' side of the conveyor: publish, read reports, clean up, find what is where."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import msgspec
from redis.exceptions import ResponseError

from duly.storage import keys
from duly.storage.channel import NextMessage, subscribed
from duly.storage.claims import Claimed
from duly.storage.permits import Permits, Rate
from duly.storage.redis import Scripts, Word, call, connect, text
from duly.storage.sight import Sight
from duly.storage.stream_facts import (
    NOTHING_WAITS,
    Backlog,
    Consumer,
    Crew,
    Held,
    Place,
    Report,
    fields,
    is_missing,
    pairs,
)

REPORTS_PAGE = 500
_SCAN_PAGES = 20
_PROBE_TTL_MS = 60_000


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
        self._node_id = node_id
        self._group = keys.nodes_group(store)
        self._holds = holds
        self._timeout_s = timeout_s
        self._client = connect(url, name=f"duly-{node_id}")
        self._reader = connect(url, name=f"duly-{node_id}-read")
        self._scripts = Scripts(self._client, timeout_s)
        self.sight = Sight(self._client, self._scripts, timeout_s)
        """Reads for people, over the same connections."""
        self.permits = Permits(self._scripts, node_id)
        self._announced: set[str] = set()
        self.has_new_queue = False
        """A queue has been announced; whoever reads reports takes note, and sets it back."""
        self._announced_reports: set[str] = set()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        await self._reader.aclose()

    # Publishing

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
        if queue not in self._announced:
            await self.announce(queue)
        said = "" if waiting is None else "-" if waiting == NOTHING_WAITS else waiting
        words: list[Word] = [keys.WORKERS_GROUP, self._node_id, keys.WAITING_TTL_MS, said]
        words += ("", "") if rate is None else (rate.per_s, rate.burst)
        words += ("1" if first else "", packed_tasks(tasks) if tasks else "")
        names = [*_queue_keys(queue), keys.waiting(queue), keys.rate(queue)]
        answer = await self._scripts.run("publish", names, words)
        entries, delivered, others, lowest, held, wait_us = answer
        if delivered < 0:  # the group is gone: the next publish or read makes it anew
            await self.announce(queue)
        return Backlog(entries, delivered, others, lowest if others else None, held, wait_us / 1e6)

    async def backlog(self, queue: str, waiting: int | None = None) -> Backlog:
        """How much waits in a queue's stream, and with other nodes; `waiting` as in `publish`."""
        return await self.publish(queue, [], waiting)

    async def announce(self, queue: str) -> None:
        """Make a queue known to every node, and its groups."""
        await self._command("SADD", keys.QUEUES, queue)
        await self._make_group(keys.reports(queue), self._group)
        await self._make_group(keys.tasks(queue), keys.WORKERS_GROUP)
        self.has_new_queue = self.has_new_queue or queue not in self._announced
        self._announced.add(queue)

    async def check_queue(self, queue: str) -> None:
        """`announce`, and raise if something of another type is in the place of any of its keys."""
        await self.announce(queue)
        for name in (
            keys.inflight(queue), keys.entries(queue), keys.waiting(queue), keys.rate(queue),
            keys.waiting_for_rate(queue),
        ):  # fmt: skip
            await self._command("HLEN", name)

    async def announce_reports(self, queue: str) -> None:
        """As `announce`, unless that was done before; the reports can be read whatever the tasks."""
        # Only once: Redis without memory refuses it, and reading reports is what makes room.
        if queue not in self._announced and queue not in self._announced_reports:
            await self._command("SADD", keys.QUEUES, queue)
            await self._make_group(keys.reports(queue), self._group)
            self._announced_reports.add(queue)

    async def supersede(self, queue: str, task_id: UUID, token: int) -> str | None:
        """After a cancel: fence the task off with a higher token; answers who is running it."""
        args: list[Word] = [keys.WORKERS_GROUP, str(task_id), token]
        holder = await self._scripts.run("supersede", _queue_keys(queue), args)
        return text(holder) if holder else None

    async def tell_worker(self, worker_id: str, message: bytes) -> None:
        """Send a control message to one worker, if it listens."""
        await self._command("PUBLISH", keys.control(worker_id), message)

    # Waking other nodes

    async def wake(self, node_id: str, message: bytes) -> None:
        """Tell another node of tasks that fall into its horizon. May get lost: it sweeps."""
        await self._command("PUBLISH", keys.wake(node_id), message)

    async def tell_freed(self, message: bytes) -> None:
        """Tell every node of concurrency keys that may have room. May get lost: they look anyway."""
        await self._command("PUBLISH", keys.NODES_FREED, message)

    async def tell_events(self, message: bytes) -> None:
        """Send a message of events to whichever nodes have clients that look on."""
        await self._command("PUBLISH", keys.EVENTS, message)

    def events(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen to the events of all nodes."""
        return subscribed(self._reader, keys.EVENTS, answer_s=self._timeout_s)

    def wakes(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen on this node's wake channel, and on the one of freed keys."""
        names = (keys.wake(self._node_id), keys.NODES_FREED)
        return subscribed(self._reader, *names, answer_s=self._timeout_s)

    # What operators set of queues

    async def announce_controls(self) -> None:
        """Tell every node that what is set of a queue has changed. May get lost: they look anyway."""
        await self._command("PUBLISH", keys.QUEUES_CHANGED, b"")

    def control_changes(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen for such announcements."""
        return subscribed(self._reader, keys.QUEUES_CHANGED, answer_s=self._timeout_s)

    # Reports

    async def known_queues(self) -> set[str]:
        """Every queue that any node has published to."""
        return {text(name) for name in await self._command("SMEMBERS", keys.QUEUES)}

    async def is_known(self, queue: str) -> bool:
        """Whether it is one of these now."""
        return bool(await self._command("SISMEMBER", keys.QUEUES, queue))

    async def read_reports(
        self, queues: Sequence[str], *, block_ms: int, again: bool = False
    ) -> list[Report]:
        """New reports, waiting up to `block_ms`; `again`: those read before and not settled."""
        words: list[str | int] = ["XREADGROUP", "GROUP", self._group, self._node_id]
        words += ["COUNT", REPORTS_PAGE]
        if not again:
            words += ["BLOCK", block_ms]
        words += ["STREAMS", *map(keys.reports, queues), *(["0" if again else ">"] * len(queues))]
        limit_s = block_ms / 1000 + self._timeout_s
        answer = await call(self._reader, *words, timeout_s=limit_s)
        names = {keys.reports(queue).encode(): queue for queue in queues}
        found = [
            Report(names[stream], entry_id, fields(words))
            for stream, entries in answer or ()
            for entry_id, words in entries
        ]
        return found if self._holds is None else await self._own(found)

    async def _own(self, found: list[Report]) -> list[Report]:
        """Without the reports of other stores' tasks: they stay in the stream, for those to read."""
        own = [one for one in found if self._is_own(one.fields.get(b"id"))]
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
        await self._command("XACK", keys.reports(queue), self._group, *entry_ids)

    def _is_own(self, task_id: bytes | None) -> bool:
        """Also what is no id: whoever reads it first removes it."""
        if self._holds is None or task_id is None:
            return True
        try:
            return self._holds(UUID(text(task_id)))
        except ValueError:
            return True

    async def unread_reports(self, queue: str, min_age_ms: int) -> list[Report]:
        """Of several stores: reports of own tasks that are in the stream for so long, the oldest first.

        They may have been passed over while their slot moved here.
        """
        now_s, _ = await self._command("TIME")
        found: list[Report] = []
        after, end = "-", str(int(now_s) * 1000 + 1000 - min_age_ms)
        for _ in range(_SCAN_PAGES):
            rows = await self._command(
                "XRANGE", keys.reports(queue), after, end, "COUNT", REPORTS_PAGE
            )
            reports = [Report(queue, entry_id, fields(words)) for entry_id, words in rows]
            found += [one for one in reports if self._is_own(one.fields.get(b"id"))]
            if len(rows) < REPORTS_PAGE or len(found) >= REPORTS_PAGE:
                break
            after = f"({text(rows[-1][0])}"
        return found

    async def take_over_reports(self, queue: str, idle_ms: int) -> None:
        """Make reports that a dead node had read and not settled this node's own."""
        after: str | bytes = "0-0"
        while True:
            answer = await self._command(
                "XAUTOCLAIM", keys.reports(queue), self._group, self._node_id, idle_ms, after,
                "COUNT", 200, "JUSTID",
            )  # fmt: skip
            after = answer[0]
            if after == b"0-0":
                return

    async def settle_reports(
        self, queue: str, items: Iterable[tuple[bytes, str | bytes, str | bytes]]
    ) -> None:
        """Forget reports (entry id, task id, token) whose outcome is recorded or stale."""
        await self._settle(keys.reports(queue), self._group, queue, items)

    async def settle_tasks(
        self, queue: str, items: Iterable[tuple[bytes, str | bytes, str | bytes]]
    ) -> None:
        """Take task entries (entry id or b"", task id, token) out of the stream."""
        await self._settle(keys.tasks(queue), keys.WORKERS_GROUP, queue, items)

    async def _settle(
        self,
        stream: str,
        group: str,
        queue: str,
        items: Iterable[tuple[bytes, str | bytes, str | bytes]],
    ) -> None:
        args: list[str | bytes] = [group, keys.WORKERS_GROUP]
        for item in items:
            args += item
        keys_ = [stream, keys.inflight(queue), keys.entries(queue), keys.tasks(queue)]
        await self._scripts.run("settle", keys_, args)

    async def reports_mark(self, queue: str) -> tuple[bytes | None, bytes]:
        """(oldest report that is not settled, id of the newest ever added) of a queue."""
        first = await self._first_report(queue)
        try:
            info = await self._command("XINFO STREAM", keys.reports(queue))
        except ResponseError as error:
            if not is_missing(error):
                raise
            await self.announce(queue)
            return None, b"0-0"
        return first, pairs(info)["last-generated-id"]

    async def _first_report(self, queue: str) -> bytes | None:
        """The oldest that is not settled; of several stores, of this store's tasks."""
        if self._holds is not None:
            own = await self.unread_reports(queue, 0)
            return own[0].entry_id if own else None
        first = await self._command("XRANGE", keys.reports(queue), "-", "+", "COUNT", 1)
        return first[0][0] if first else None

    # Looking after workers

    async def crew(self, queue: str) -> Crew:
        """The workers of a queue, dead or alive. The group is made anew if it is gone.

        Without marks if the queue's name is gone, too: another node has forgotten it.
        """
        try:
            rows = await self._command("XINFO CONSUMERS", keys.tasks(queue), keys.WORKERS_GROUP)
        except ResponseError as error:
            if not is_missing(error):
                raise
            if not await self.is_known(queue):
                return Crew([], frozenset())
            await self.announce(queue)
            rows = []
        facts = {text(fact["name"]): fact for fact in map(pairs, rows)}
        marks = frozenset(name for name in facts if name.startswith(keys.MARK))
        if not marks:
            marks = frozenset({f"{keys.MARK}{secrets.token_hex(8)}"})
            await self._command(
                "XGROUP", "CREATECONSUMER", keys.tasks(queue), keys.WORKERS_GROUP, *marks
            )
        names = [name for name in facts if name not in marks]
        signs = await self._command("MGET", *map(keys.worker, names)) if names else []
        workers = [
            Consumer(name, facts[name]["pending"], facts[name]["idle"], sign)
            for name, sign in zip(names, signs, strict=True)
        ]
        return Crew(workers, marks)

    async def held_by(self, queue: str, consumer: str, min_idle_ms: int, limit: int) -> list[Held]:
        """Entries that a consumer has had for at least `min_idle_ms`, the oldest first."""
        held: list[Held] = []
        after = "-"
        while True:
            rows = await self._command(
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
            found = await self._command("XRANGE", keys.tasks(queue), entry_id, entry_id)
            said = fields(found[0][1]) if found else {}
            task_id, token = said.get(b"id", b""), said.get(b"token", b"")
            if not self._is_own(task_id):
                continue
            held.append(
                Held(entry_id, task_id.decode(errors="replace"), token.decode(errors="replace"),
                     idle_ms)
            )  # fmt: skip
        return held

    async def locate(self, queue: str, tasks: Sequence[tuple[UUID, int]]) -> list[Place]:
        """Where these (id, token) are."""
        args: list[str | int] = [keys.WORKERS_GROUP]
        for task_id, token in tasks:
            args += (str(task_id), token)
        rows = await self._scripts.run("locate", _queue_keys(queue), args)
        return [Place(entry, text(consumer), idle_ms) for entry, consumer, idle_ms in rows]

    async def forget_worker(self, queue: str, consumer: str) -> None:
        """Remove a dead worker's name, if nothing is pending there."""
        args = [keys.WORKERS_GROUP, consumer]
        await self._scripts.run("forget_consumer", [keys.tasks(queue)], args)

    async def forget_nodes(self, queue: str, idle_ms: int) -> None:
        """Remove the names of nodes that have not read reports for so long and hold none."""
        try:
            rows = await self._command("XINFO CONSUMERS", keys.reports(queue), self._group)
        except ResponseError as error:
            if not is_missing(error):
                raise
            return
        for fact in map(pairs, rows):
            if fact["idle"] >= idle_ms and fact["name"] != self._node_id.encode():
                args = [self._group, fact["name"]]
                await self._scripts.run("forget_consumer", [keys.reports(queue)], args)

    async def forget_queue(self, queue: str) -> bool:
        """Remove a queue's name and keys if it is empty and has no worker; answers whether it was.

        The name goes first: who finds the keys gone looks whether it is there. A publication that comes in
        between makes everything anew.
        """
        await self._command("SREM", keys.QUEUES, queue)
        names = [keys.tasks(queue), keys.reports(queue), keys.inflight(queue), keys.entries(queue)]
        args = [keys.WORKERS_GROUP, keys.MARK]
        if not await self._scripts.run("forget_queue", names, args):
            await self._command("SADD", keys.QUEUES, queue)
            return False
        self.forget_announced(queue)
        return True

    async def inflight_page(self, queue: str, cursor: int) -> tuple[int, list[tuple[str, str]]]:
        """A page of the in-flight hash: (next cursor, 0 at the end; (id, token) pairs)."""
        answer = await self._command("HSCAN", keys.inflight(queue), cursor, "COUNT", 200)
        found = {text(key): text(value) for key, value in dict(answer[1]).items()}
        return int(answer[0]), list(found.items())

    async def drop_entries(self, queue: str) -> None:
        """Forget the places of entries whose task is not in flight any more."""
        cursor: int | bytes = 0
        while True:
            cursor, found = await self._command("HSCAN", keys.entries(queue), cursor, "COUNT", 200)
            if ids := list(dict(found)):
                names = [keys.inflight(queue), keys.entries(queue)]
                await self._scripts.run("drop_entries", names, ids)
            if int(cursor) == 0:
                return

    # Health

    async def data_mark(self) -> tuple[bytes, bytes | None]:
        """(the server's run id, our sentinel): a change of either may mean lost data.

        Raises ReadOnlyError if the server takes no writes: then no worker can show that it lives.
        """
        run_id, sentinel = await self._scripts.run("data_mark", [keys.ALIVE], [])
        return run_id, sentinel

    async def set_sentinel(self) -> None:
        """Put the sentinel that is gone when the data are, if it is; each one is unlike the last."""
        await self._command("SET", keys.ALIVE, f"{self._node_id} {secrets.token_hex(8)}", "NX")

    def forget_announced(self, queue: str | None = None) -> None:
        """Redis lost its data, or those of one queue: the groups have to be made anew."""
        for announced in (self._announced, self._announced_reports):
            if queue is None:
                announced.clear()
            else:
                announced.discard(queue)

    async def probe(self) -> None:
        """Raise unless Redis answers and takes writes, also such as need memory."""
        await self._command("SET", keys.PROBE, self._node_id, "PX", _PROBE_TTL_MS)

    async def _make_group(self, stream: str, group: str) -> None:
        try:
            await self._command("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def _command(self, *words: Any) -> Any:
        return await call(self._client, *words, timeout_s=self._timeout_s)


def _queue_keys(queue: str) -> list[str]:
    return [keys.tasks(queue), keys.inflight(queue), keys.entries(queue)]
