"""The commands of Redis that Duly uses, on `Data`: raw replies, as RESP2 carries them.

`tests/simulation/test_redis_conforms.py` holds them to a real server.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from simulated.redis_data import CommandError, Data, Group, Stream, Words, read, show

T = TypeVar("T")

Command = Callable[["Commands", list[bytes]], Any]
_commands: dict[bytes, Command] = {}


def command(name: str) -> Callable[[Command], Command]:
    """Register what a command does with its words."""

    def register(function: Command) -> Command:
        _commands[name.encode()] = function
        return function

    return register


class Ok:
    """A status reply."""


OK = Ok()


class Commands:
    """One server's data. `now_ms`: its clock. `run_id`: another one after a restart."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.started_ms = now_ms()
        self.run_id = b"run1"
        self.data = Data()
        self.added: Callable[[bytes, Words], None] = lambda key, words: None
        """Is told of each entry that is added to a stream."""
        self.delivered: Callable[[bytes, bytes, Words], None] = lambda key, consumer, words: None
        """Is told of each entry that a consumer gets for the first time."""
        self.published: Callable[[bytes, bytes], int] = lambda channel, message: 0

    def run(self, words: list[bytes]) -> Any:
        """Run one command. Raises `CommandError`; LookupError for one that is not simulated."""
        known = _commands.get(words[0])
        if known is not None:
            return known(self, words[1:])
        two = b" ".join(words[:2]).upper()
        for name, rest in ((words[0].upper(), words[1:]), (two, words[2:])):
            if name in _commands:
                return _commands[name](self, rest)
        raise LookupError(f"the simulated Redis does not know {two!r}: add it, and to its test")

    def flush(self, *, restart: bool) -> None:
        """All data is gone."""
        self.data = Data()
        if restart:
            self.started_ms = self.now_ms()
            self.run_id = b"run%d" % self.now_ms()

    def of(self, key: bytes, kind: Callable[[], T]) -> T:
        """The value of a key, made if it is not there."""
        value = self.data.get(key, self.now_ms)
        if value is None:
            value = kind()  # type: ignore[assignment]
            self.data.set(key, value)  # type: ignore[arg-type]
        return value  # type: ignore[return-value]

    def peek(self, key: bytes, default: T) -> T:
        """The value of a key, or `default`."""
        value: Any = self.data.get(key, self.now_ms)
        return default if value is None else value

    def group(self, key: bytes, group: bytes, context: str = "") -> tuple[Stream, Group]:
        """A stream and a group of it. Raises NOGROUP."""
        stream = self.peek(key, None)
        if not isinstance(stream, Stream) or group not in stream.groups:
            name, of = key.decode(), group.decode()
            raise CommandError(f"NOGROUP No such key '{name}' or consumer group '{of}'{context}")
        return stream, stream.groups[group]


# Keys


@command("PING")
def _ping(redis: Commands, words: Words) -> Any:
    return b"PONG"


@command("TIME")
def _time(redis: Commands, words: Words) -> Any:
    ms = redis.now_ms()
    return [b"%d" % (ms // 1000), b"%d" % (ms % 1000 * 1000)]


@command("INFO")
def _info(redis: Commands, words: Words) -> Any:
    up_s = (redis.now_ms() - redis.started_ms) // 1000
    return b"run_id:%s\r\nuptime_in_seconds:%d\r\n" % (redis.run_id, up_s)


@command("GET")
def _get(redis: Commands, words: Words) -> Any:
    return redis.peek(words[0], None)


@command("SET")
def _set(redis: Commands, words: Words) -> Any:
    options = [word.upper() for word in words[2:]]
    if b"NX" in options and redis.peek(words[0], None) is not None:
        return None
    expires = None
    if b"PX" in options:
        expires = redis.now_ms() + int(options[options.index(b"PX") + 1])
    redis.data.set(words[0], words[1], expires)
    return OK


@command("DEL")
def _del(redis: Commands, words: Words) -> Any:
    there = [key for key in words if redis.peek(key, None) is not None]
    return sum(redis.data.delete(key) for key in there)


@command("MGET")
def _mget(redis: Commands, words: Words) -> Any:
    return [redis.peek(key, None) for key in words]


@command("PERSIST")
def _persist(redis: Commands, words: Words) -> Any:
    redis.peek(words[0], None)
    return int(redis.data.expires_ms.pop(words[0], None) is not None)


@command("EXISTS")
def _exists(redis: Commands, words: Words) -> Any:
    return sum(redis.peek(key, None) is not None for key in words)


@command("PEXPIRE")
def _pexpire(redis: Commands, words: Words) -> Any:
    if redis.peek(words[0], None) is None:
        return 0
    redis.data.expires_ms[words[0]] = redis.now_ms() + int(words[1])
    return 1


@command("PTTL")
def _pttl(redis: Commands, words: Words) -> Any:
    if redis.peek(words[0], None) is None:
        return -2
    expires = redis.data.expires_ms.get(words[0])
    return -1 if expires is None else expires - redis.now_ms()


@command("PUBLISH")
def _publish(redis: Commands, words: Words) -> Any:
    return redis.published(words[0], words[1])


# Sets, sorted sets, hashes


@command("SADD")
def _sadd(redis: Commands, words: Words) -> Any:
    kept: set[bytes] = redis.of(words[0], set)
    before = len(kept)
    kept.update(words[1:])
    return len(kept) - before


@command("SREM")
def _srem(redis: Commands, words: Words) -> Any:
    kept = redis.peek(words[0], set[bytes]())
    there = kept.intersection(words[1:])
    kept -= there
    if there and not kept:
        redis.data.delete(words[0])
    return len(there)


@command("SISMEMBER")
def _sismember(redis: Commands, words: Words) -> Any:
    return int(words[1] in redis.peek(words[0], set[bytes]()))


@command("SMEMBERS")
def _smembers(redis: Commands, words: Words) -> Any:
    return sorted(redis.peek(words[0], set[bytes]()))


@command("ZADD")
def _zadd(redis: Commands, words: Words) -> Any:
    kept: dict[bytes, float] = redis.of(words[0], dict)
    new = words[2] not in kept
    kept[words[2]] = float(words[1])
    return int(new)


@command("ZREM")
def _zrem(redis: Commands, words: Words) -> Any:
    return _drop(redis, words)


@command("ZSCORE")
def _zscore(redis: Commands, words: Words) -> Any:
    score = redis.peek(words[0], dict[bytes, float]()).get(words[1])
    return None if score is None else b"%d" % score


@command("ZREMRANGEBYRANK")
def _zremrangebyrank(redis: Commands, words: Words) -> Any:
    kept = redis.peek(words[0], dict[bytes, float]())
    names = sorted(kept, key=lambda name: (kept[name], name))
    last = int(words[2])
    assert (words[1], last < 0) == (b"0", True), words
    gone = names[: max(0, len(names) + last + 1)]
    return _drop(redis, [words[0], *gone]) if gone else 0


@command("ZRANGE")
def _zrange(redis: Commands, words: Words) -> Any:
    assert words[1:] == [b"0", b"-1"], words
    kept = redis.peek(words[0], dict[bytes, float]())
    return sorted(kept, key=lambda name: (kept[name], name))


@command("ZRANGEBYSCORE")
def _zrangebyscore(redis: Commands, words: Words) -> Any:
    low, high = words[1:3]
    kept = redis.peek(words[0], dict[bytes, float]())
    found = [name for name, score in kept.items() if _above(score, low) and _below(score, high)]
    return sorted(found, key=lambda name: (kept[name], name))


def _above(score: float, low: bytes) -> bool:
    return score > float(low[1:]) if low[:1] == b"(" else score >= float(low)


def _below(score: float, high: bytes) -> bool:
    return score < float(high[1:]) if high[:1] == b"(" else score <= float(high)


@command("HGET")
def _hget(redis: Commands, words: Words) -> Any:
    return redis.peek(words[0], dict[bytes, bytes]()).get(words[1])


@command("HGETALL")
def _hgetall(redis: Commands, words: Words) -> Any:
    kept = redis.peek(words[0], dict[bytes, bytes]())
    return [word for pair in kept.items() for word in pair]


@command("HMGET")
def _hmget(redis: Commands, words: Words) -> Any:
    kept = redis.peek(words[0], dict[bytes, bytes]())
    return [kept.get(name) for name in words[1:]]


@command("HSET")
def _hset(redis: Commands, words: Words) -> Any:
    kept: dict[bytes, bytes] = redis.of(words[0], dict)
    before = len(kept)
    kept.update(zip(words[1::2], words[2::2], strict=True))
    return len(kept) - before


@command("HDEL")
def _hdel(redis: Commands, words: Words) -> Any:
    return _drop(redis, words)


@command("HLEN")
def _hlen(redis: Commands, words: Words) -> Any:
    return len(redis.peek(words[0], dict[bytes, bytes]()))


@command("HINCRBY")
def _hincrby(redis: Commands, words: Words) -> Any:
    kept: dict[bytes, bytes] = redis.of(words[0], dict)
    value = int(kept.get(words[1], b"0")) + int(words[2])
    kept[words[1]] = b"%d" % value
    return value


@command("HSCAN")
def _hscan(redis: Commands, words: Words) -> Any:
    kept = redis.peek(words[0], dict[bytes, bytes]())
    return [b"0", [word for pair in kept.items() for word in pair]]


def _drop(redis: Commands, words: Words) -> int:
    """Of a hash or a sorted set; one that is empty is gone."""
    kept: dict[bytes, Any] = redis.peek(words[0], {})
    dropped = sum(kept.pop(name, None) is not None for name in words[1:])
    if dropped and not kept:
        redis.data.delete(words[0])
    return dropped


# Streams


@command("XADD")
def _xadd(redis: Commands, words: Words) -> Any:
    assert words[1] == b"*", words
    stream: Stream = redis.of(words[0], Stream)
    entry = stream.add(redis.now_ms(), words[2:])
    redis.added(words[0], words[2:])
    return show(entry)


@command("XLEN")
def _xlen(redis: Commands, words: Words) -> Any:
    return len(redis.peek(words[0], Stream()).entries)


@command("XDEL")
def _xdel(redis: Commands, words: Words) -> Any:
    entries = redis.peek(words[0], Stream()).entries
    return sum(entries.pop(read(text), None) is not None for text in words[1:])


@command("XRANGE")
def _xrange(redis: Commands, words: Words) -> Any:
    stream = redis.peek(words[0], Stream())
    low, high = read(words[1]), read(words[2], 1 << 63)
    if low == high:
        found = [low] if low in stream.entries else []
    else:
        found = [entry for entry in stream.entries if low <= entry <= high]
    if len(words) > 3:
        found = found[: int(words[4])]
    return [[show(entry), list(stream.entries[entry])] for entry in found]


@command("XACK")
def _xack(redis: Commands, words: Words) -> Any:
    groups = redis.peek(words[0], Stream()).groups
    if words[1] not in groups:
        return 0
    pending = groups[words[1]].pending
    return sum(pending.pop(read(text), None) is not None for text in words[2:])


@command("XGROUP CREATE")
def _xgroup_create(redis: Commands, words: Words) -> Any:
    assert words[2:] == [b"0", b"MKSTREAM"], words
    stream: Stream = redis.of(words[0], Stream)
    if words[1] in stream.groups:
        raise CommandError("BUSYGROUP Consumer Group name already exists")
    stream.groups[words[1]] = Group()
    return OK


@command("XGROUP CREATECONSUMER")
def _xgroup_createconsumer(redis: Commands, words: Words) -> Any:
    stream = redis.peek(words[0], None)
    if not isinstance(stream, Stream):
        raise CommandError("The XGROUP subcommand requires the key to exist.")
    group = _known_group(stream, words[0], words[1])
    if words[2] in group.consumers:
        return 0
    group.consumers[words[2]] = redis.now_ms()
    return 1


@command("XGROUP DELCONSUMER")
def _xgroup_delconsumer(redis: Commands, words: Words) -> Any:
    _, group = redis.group(words[0], words[1])
    held = group.of(words[2])
    for entry in held:
        del group.pending[entry]
    group.consumers.pop(words[2], None)
    return len(held)


@command("XREADGROUP")
def _xreadgroup(redis: Commands, words: Words) -> Any:
    names = words[words.index(b"STREAMS") + 1 :]
    half = len(names) // 2
    count = int(words[words.index(b"COUNT") + 1])
    consumer, found = words[2], []
    context = " in XREADGROUP with GROUP option"
    places = [(k, *redis.group(k, words[1], context)) for k in names[:half]]
    for (key, stream, group), after in zip(places, names[half:], strict=True):
        group.consumers[consumer] = redis.now_ms()
        if after == b">":
            fresh = stream.deliver(group, consumer, count, redis.now_ms())
            if fresh:
                found.append([key, fresh])
                for _, said in fresh:
                    redis.delivered(key, consumer, said)
            continue
        held = [entry for entry in group.of(consumer) if entry > read(after)][:count]
        for entry in held:
            if entry in stream.entries:
                group.pending[entry].times += 1
                group.pending[entry].delivered_ms = redis.now_ms()
        kept = stream.entries
        found.append([key, [[show(e), list(kept[e]) if e in kept else None] for e in held]])
    return found or None


@command("XPENDING")
def _xpending(redis: Commands, words: Words) -> Any:
    _, group = redis.group(words[0], words[1])
    rest = words[2:]
    if not rest:
        return _pending_summary(group)
    min_idle = 0
    if rest[0] == b"IDLE":
        min_idle, rest = int(rest[1]), rest[2:]
    low, high, count = rest[:3]
    exclusive = low[:1] == b"("
    start, end = read(low[1:] if exclusive else low), read(high, 1 << 63)
    now = redis.now_ms()
    found = [
        [show(entry), held.consumer, now - held.delivered_ms, held.times]
        for entry, held in sorted(group.pending.items(), key=lambda item: item[0])
        if start <= entry <= end and not (exclusive and entry == start)
        and now - held.delivered_ms >= min_idle
        and (len(rest) < 4 or held.consumer == rest[3])
    ]  # fmt: skip
    return found[: int(count)]


def _pending_summary(group: Group) -> list[Any]:
    if not group.pending:
        return [0, None, None, None]
    counts: dict[bytes, int] = {}
    for held in group.pending.values():
        counts[held.consumer] = counts.get(held.consumer, 0) + 1
    each = [[name, b"%d" % counts[name]] for name in sorted(counts)]
    return [len(group.pending), show(min(group.pending)), show(max(group.pending)), each]


@command("XAUTOCLAIM")
def _xautoclaim(redis: Commands, words: Words) -> Any:
    stream, group = redis.group(words[0], words[1])
    consumer, idle, start = words[2], int(words[3]), read(words[4])
    assert words[5] == b"COUNT", words
    assert words[7] == b"JUSTID", words
    group.consumers[consumer] = now = redis.now_ms()
    claimed, deleted = [], []
    for entry in sorted(group.pending):
        held = group.pending[entry]
        if entry < start or now - held.delivered_ms < idle:
            continue
        if entry not in stream.entries:
            del group.pending[entry]
            deleted.append(show(entry))
            continue
        held.consumer, held.delivered_ms = consumer, now
        claimed.append(show(entry))
    assert len(claimed) <= int(words[6]), "more than a page is not simulated"
    return [b"0-0", claimed, deleted]


@command("XINFO STREAM")
def _xinfo_stream(redis: Commands, words: Words) -> Any:
    stream = redis.peek(words[0], None)
    if not isinstance(stream, Stream):
        raise CommandError("no such key")
    facts = [b"length", len(stream.entries), b"last-generated-id", show(stream.last)]
    return [*facts, b"first-entry", None, b"last-entry", None]  # which nobody asks for


@command("XINFO GROUPS")
def _xinfo_groups(redis: Commands, words: Words) -> Any:
    stream = redis.peek(words[0], None)
    if not isinstance(stream, Stream):
        raise CommandError("no such key")
    return [
        [b"name", name, b"consumers", len(group.consumers), b"pending", len(group.pending),
         b"last-delivered-id", show(group.last)]
        for name, group in sorted(stream.groups.items())
    ]  # fmt: skip


@command("XINFO CONSUMERS")
def _xinfo_consumers(redis: Commands, words: Words) -> Any:
    stream = redis.peek(words[0], None)
    if not isinstance(stream, Stream):
        raise CommandError("no such key")
    group = _known_group(stream, words[0], words[1])
    return [
        [b"name", name, b"pending", len(group.of(name)), b"idle", redis.now_ms() - heard]
        for name, heard in sorted(group.consumers.items())
    ]


def _known_group(stream: Stream, key: bytes, group: bytes) -> Group:
    if group not in stream.groups:
        name, of = key.decode(), group.decode()
        raise CommandError(f"NOGROUP No such consumer group '{of}' for key name '{name}'")
    return stream.groups[group]
