"""What Redis keeps: values with an expiry, and streams with consumer groups."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EntryId = tuple[int, int]
Words = list[bytes]


class CommandError(Exception):
    """What Redis answers instead of a result; the text as redis-py shows it."""


@dataclass
class Pending:
    """An entry that was delivered and not acknowledged."""

    consumer: bytes
    delivered_ms: int
    times: int = 1


@dataclass
class Group:
    """A consumer group."""

    last: EntryId = (0, 0)
    pending: dict[EntryId, Pending] = field(default_factory=dict)
    consumers: dict[bytes, int] = field(default_factory=dict)
    """Name -> when it was last heard of, ms."""

    def of(self, consumer: bytes) -> list[EntryId]:
        """What this consumer holds, in order."""
        return sorted(i for i, p in self.pending.items() if p.consumer == consumer)


@dataclass
class Stream:
    """Entries in order of their ids, which only grow."""

    entries: dict[EntryId, Words] = field(default_factory=dict)
    last: EntryId = (0, 0)
    groups: dict[bytes, Group] = field(default_factory=dict)

    def add(self, now_ms: int, words: Words) -> EntryId:
        """XADD with `*`."""
        ms, seq = self.last
        self.last = (now_ms, 0) if now_ms > ms else (ms, seq + 1)
        self.entries[self.last] = words
        return self.last

    def deliver(self, group: Group, consumer: bytes, count: int, now_ms: int) -> list[list[Any]]:
        """Entries that nobody in the group has had yet."""
        if self.last <= group.last:
            return []
        fresh = [entry for entry in self.entries if entry > group.last][:count]
        for entry in fresh:
            group.pending[entry] = Pending(consumer, now_ms)
            group.last = entry
        return [[show(entry), list(self.entries[entry])] for entry in fresh]


Value = bytes | dict[bytes, bytes] | set[bytes] | dict[bytes, float] | Stream


class Data:
    """Keys. A key whose time is over is gone."""

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.expires_ms: dict[bytes, int] = {}

    def get(self, key: bytes, now_ms: Callable[[], int]) -> Value | None:
        """The value, if there is one."""
        expires = self.expires_ms.get(key)
        if expires is not None and expires <= now_ms():
            self.delete(key)
        return self.values.get(key)

    def set(self, key: bytes, value: Value, expires_ms: int | None = None) -> None:
        """Put a value; without `expires_ms` it stays."""
        self.values[key] = value
        if expires_ms is None:
            self.expires_ms.pop(key, None)
        else:
            self.expires_ms[key] = expires_ms

    def delete(self, key: bytes) -> bool:
        """Whether it was there."""
        self.expires_ms.pop(key, None)
        return self.values.pop(key, None) is not None


def show(entry: EntryId) -> bytes:
    """An id as text."""
    return b"%d-%d" % entry


def read(text: bytes, default_seq: int = 0) -> EntryId:
    """An id from text; `-` and `+` are the ends."""
    if text == b"-":
        return (0, 0)
    if text == b"+":
        return (1 << 63, 0)
    ms, _, seq = text.partition(b"-")
    return int(ms), int(seq) if seq else default_seq
