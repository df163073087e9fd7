"""The worker's side of the Redis protocol (design, section 7): read, begin, report, stay alive.

Three connections, since each kind of waiting needs its own: commands (short, pooled), the blocking
read of the streams, and the control channel. Every call has a timeout; none is repeated here,
because a repeated read could hide entries that the lost answer had delivered. Replies are taken in
RESP2's raw shape, which is the same in every version of the client library.

Cancelling a call is safe: redis-py closes a connection whose answer has not been read, so no later
call can get it (tests/nodes/worker/test_conveyor.py holds it to that).
"""

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import msgspec
from redis.exceptions import OutOfMemoryError, ResponseError

from duly.storage import keys
from duly.storage.channel import NextMessage, subscribed
from duly.storage.cluster_reads import ClusterReads
from duly.storage.redis import AnyRedis, Scripts, call, connect, connect_any
from duly.storage.redis_cluster import ClusterClient

COMMAND_TIMEOUT_S = 5.0
"""Longest wait for one answer, on top of a read's own blocking time."""

PENDING_PAGE = 500
"""Entry ids asked for at once when looking through what was delivered to this worker."""

_pack = msgspec.msgpack.Encoder().encode

Item = tuple[bytes, list[str]]
"""Stream entry id and the words (field, value, …) of its report; no words: drop the entry."""


class GroupMissingError(Exception):
    """A stream or its consumer group does not exist (first start, or Redis lost its data)."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One dispatched attempt as it stood in the stream."""

    queue: str
    entry_id: bytes
    id: str
    token: int
    type: str
    payload: bytes
    due_us: int
    """The occurrence's due time, microseconds since the epoch; the same for every attempt."""
    attempt: int
    timeout_s: float
    confirm: bool
    """The start must be granted by a node before the handler runs."""
    traceparent: str | None = None
    """The trace that this attempt belongs to (W3C Trace Context)."""
    parent: bytes | None = None
    """JSON: the task that this one follows, and what became of it."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A stream entry that breaks the protocol."""

    queue: str
    entry_id: bytes
    reason: str


Delivery = Entry | Unreadable


def parse_entry(queue: str, entry_id: bytes, words: Sequence[bytes] | None) -> Delivery:
    """Read the flat field list of one stream entry; `words` is None if the entry was deleted."""
    if words is None:
        return Unreadable(queue, entry_id, "the entry was deleted while it was pending")
    fields = dict(zip(words[::2], words[1::2], strict=True))
    try:
        timeout_s = float(fields.get(b"timeout", b"300"))
        if not 0 < timeout_s < math.inf:
            return Unreadable(queue, entry_id, f"timeout {timeout_s} is not a length of time")
        return Entry(
            queue=queue,
            entry_id=entry_id,
            id=fields[b"id"].decode(),
            token=int(fields[b"token"]),
            type=fields[b"type"].decode(),
            payload=fields.get(b"payload", b"null"),
            due_us=round(float(fields[b"due"]) * 1000),
            attempt=int(fields.get(b"attempt", b"1")),
            timeout_s=timeout_s,
            confirm=fields.get(b"confirm") == b"1",
            traceparent=fields[b"traceparent"].decode() if b"traceparent" in fields else None,
            parent=fields.get(b"parent"),
        )
    except KeyError as error:
        return Unreadable(queue, entry_id, f"field {error.args[0].decode()!r} is missing")
    except (ValueError, OverflowError) as error:
        return Unreadable(queue, entry_id, str(error))


class Conveyor:
    """One worker's access to the streams of its queues.

    Every method may raise one of `redis.TROUBLE`; after it, entries may have been delivered that the
    caller has not seen: `pending` finds them, `fetch` brings them.
    """

    def __init__(self, url: str, worker_id: str) -> None:
        """Prepare connections to `url`; nothing is opened before the first call.

        Raises ValueError for a URL that is not a Redis URL.
        """
        self._worker_id = worker_id
        self._reader_id: int | None = None
        name = f"duly-worker-{worker_id}"
        self._commands = self._reader = self._control = connect_any(url, name=name)
        self._reads: ClusterReads | None = None
        if isinstance(self._commands, ClusterClient):
            self._reads = ClusterReads(self._commands, COMMAND_TIMEOUT_S)
        else:
            reader = connect(url, name=f"{name}-read", redis_connect_func=self._reader_connected)
            self._reader, self._control = reader, connect(url, name=f"{name}-control")
        self._scripts = Scripts(self._commands, COMMAND_TIMEOUT_S)

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._reads is not None:
            await self._reads.aclose()
        for client in (self._commands, self._reader, self._control):
            await client.aclose()

    # Streams

    async def create_group(self, queue: str) -> None:
        """Make the queue's stream and group if they are missing; existing entries are kept."""
        try:
            await _call(
                self._commands,
                ("XGROUP", "CREATE", keys.tasks(queue), keys.WORKERS_GROUP, "0", "MKSTREAM"),
            )
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def check_queue(self, queue: str) -> None:
        """`create_group`, and raise if something else is in the place of the queue's other key."""
        await self.create_group(queue)
        await _call(self._commands, ("HLEN", keys.inflight(queue)))

    async def read(self, queues: Sequence[str], count: int, block_ms: int) -> list[Delivery]:
        """Take up to `count` new entries from each queue, waiting up to `block_ms` (0: not at all).

        Raises GroupMissingError when one of the groups is gone.
        """
        streams = [keys.tasks(queue) for queue in queues]
        begin = ("XREADGROUP", "GROUP", keys.WORKERS_GROUP, self._worker_id, "COUNT", count)
        if self._reads is not None:
            with _missing_groups():
                answer = await self._reads.read(begin, streams, ">", block_ms)
        else:
            wait = ("BLOCK", block_ms) if block_ms else ()
            words = (*begin, *wait, "STREAMS", *streams, *([">"] * len(queues)))
            answer = await _grouped(self._reader, words, block_ms / 1000 + COMMAND_TIMEOUT_S)
        names = {stream.encode(): queue for stream, queue in zip(streams, queues, strict=True)}
        return [
            parse_entry(names[stream], entry_id, words)
            for stream, entries in answer or ()
            for entry_id, words in entries
        ]

    async def pending(self, queue: str) -> list[bytes]:
        """Return the ids of the entries that were delivered to this worker and not given back.

        Raises GroupMissingError when the group is gone.
        """
        found: list[bytes] = []
        after: str | bytes = "-"
        while True:
            words = ("XPENDING", keys.tasks(queue), keys.WORKERS_GROUP, after, "+")
            page = await _grouped(self._commands, (*words, PENDING_PAGE, self._worker_id))
            found += [line[0] for line in page]
            if len(page) < PENDING_PAGE:
                return found
            after = b"(" + found[-1]

    async def fetch(self, queue: str, entry_ids: Iterable[bytes]) -> list[Delivery]:
        """Return these entries once more, as `read` did or should have done."""
        found: list[Delivery] = []
        for entry_id in entry_ids:
            words = ("XRANGE", keys.tasks(queue), entry_id, entry_id)
            entries = await _call(self._commands, words)
            found.append(parse_entry(queue, entry_id, entries[0][1] if entries else None))
        return found

    async def unblock(self) -> None:
        """End a blocked `read` now, as if its time had run out."""
        if self._reads is not None:
            await self._reads.unblock()
        elif self._reader_id is not None:
            await _call(self._commands, ("CLIENT", "UNBLOCK", self._reader_id))

    # Outcomes

    async def tokens(self, queue: str, ids: Sequence[str]) -> list[bytes | None]:
        """Return, for each task id, the token that is now in flight (`begin` for a whole batch)."""
        answer = await _call(self._commands, ("HMGET", keys.inflight(queue), *ids))
        return cast("list[bytes | None]", answer)

    async def report(self, queue: str, items: Iterable[Item]) -> None:
        """Add the reports and give back their entries, all in one step."""
        packed = _pack([(entry_id.decode(), *fields) for entry_id, fields in items])
        words = (keys.WORKERS_GROUP, packed)
        await self._scripts.run("report", [keys.tasks(queue), keys.reports(queue)], words)

    # Liveness and control

    async def seen(self) -> bytes | None:
        """Return what the liveness key of this worker's id holds now."""
        answer = await _call(self._commands, ("GET", keys.worker(self._worker_id)))
        return cast("bytes | None", answer)

    async def beat(self, value: bytes) -> None:
        """Say that this worker lives, for `keys.LIVENESS_TTL_MS`."""
        key, ttl_ms = keys.worker(self._worker_id), keys.LIVENESS_TTL_MS
        try:
            await _call(self._commands, ("SET", key, value, "PX", ttl_ms))
        except OutOfMemoryError:
            # Which Redis allows even then: a full server must not make the living look dead.
            if not await _call(self._commands, ("PEXPIRE", key, ttl_ms)):
                raise

    async def leave(self) -> None:
        """Withdraw the liveness key: this worker holds nothing any more."""
        await _call(self._commands, ("DEL", keys.worker(self._worker_id)))

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[NextMessage]:
        """Subscribe to this worker's control channel."""
        channel = keys.control(self._worker_id)
        async with subscribed(self._control, channel, answer_s=COMMAND_TIMEOUT_S) as next_message:
            yield next_message

    async def _reader_connected(self, connection: Any) -> None:
        """Learn the reading connection's id, by which `unblock` ends its wait."""
        await connection.on_connect()
        try:
            await connection.send_command("CLIENT", "ID")
            self._reader_id = int(await connection.read_response())
        except ResponseError:
            self._reader_id = None  # not permitted here: a read then ends by its own time


async def _call(
    client: AnyRedis, words: Sequence[str | bytes | int], timeout_s: float | None = None
) -> Any:
    limit_s = COMMAND_TIMEOUT_S if timeout_s is None else timeout_s
    return await call(client, *words, timeout_s=limit_s)


async def _grouped(
    client: AnyRedis, words: Sequence[str | bytes | int], timeout_s: float | None = None
) -> Any:
    with _missing_groups():
        return await _call(client, words, timeout_s)


@contextmanager
def _missing_groups() -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        if str(error).startswith("NOGROUP"):
            raise GroupMissingError(str(error)) from error
        raise
