"""What Redis answers about streams: the shapes that the actors see, and how raw replies are read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

REPORT_JSON_BYTES_MAX = 256 * 1024
"""Longest `result` and longest `error` of a report."""

WORKER_CHARS_MAX = 200
"""Longest id of a worker."""

GIVEN_BACK = "given_back"
"""Type of the error of a report `snoozed` that says why the worker has not begun the task."""


NOTHING_WAITS = -1
"""In the place of a rank."""


class Backlog(NamedTuple):
    """A queue's stream: entries in it, how many of them a worker has fetched; and who waits."""

    entries: int
    delivered: int
    others: int = 0
    """How many other nodes have due tasks for which there is no room."""
    lowest: int | None = None
    """The lowest rank that one of them said: what ranks behind it is not to be published now."""
    held: int = 0
    """Of the tasks that were to be published, so many (the last ones) were held back: too early."""
    wait_s: float = 0.0
    """After so long those that were held back may come again."""

    @property
    def undelivered(self) -> int:
        """What still waits for a worker."""
        return max(0, self.entries - max(0, self.delivered))


class Report(NamedTuple):
    """One entry of a reports stream; `fields` as the worker wrote them."""

    queue: str
    entry_id: bytes
    fields: dict[bytes, bytes]


class Consumer(NamedTuple):
    """A worker, as a queue's consumer group knows it."""

    id: str
    pending: int
    idle_ms: int
    sign: bytes | None
    """Its sign of life: what its liveness key holds; None = gone. Where that cannot be asked for, the last one."""


class Crew(NamedTuple):
    """The consumers of a queue's group: workers, and what marks this group as the same as before."""

    workers: list[Consumer]
    marks: frozenset[str]
    """If none of those seen before is among them, the stream was lost and made anew."""


class Held(NamedTuple):
    """An entry delivered to a worker and not given back yet."""

    entry_id: bytes
    id: str
    token: str
    idle_ms: int


class Place(NamedTuple):
    """Where a dispatched task is: in the stream (`entry_id`), with a worker (`consumer`)."""

    entry_id: bytes
    consumer: str
    idle_ms: int


def fields(words: Sequence[bytes] | None) -> dict[bytes, bytes]:
    """The fields of an entry; none if it was deleted while it was pending."""
    words = words or ()
    return dict(zip(words[::2], words[1::2], strict=True))


def pairs(row: Any) -> dict[str, Any]:
    """One line of an XINFO answer, by name."""
    if isinstance(row, dict):
        return {k.decode() if isinstance(k, bytes) else k: v for k, v in row.items()}
    return {row[i].decode(): row[i + 1] for i in range(0, len(row), 2)}


def is_missing(error: ResponseError) -> bool:
    """Whether Redis says that the stream or its group is not there."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED", "ERR no such key", "no such key"))
