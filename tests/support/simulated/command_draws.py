"""Draws random calls of Redis, for the test that compares two servers: the product's own scripts and
the commands around them, on few names, so that they meet."""

import random
from typing import Any, NamedTuple

import msgspec

from duly.storage import keys

_QUEUE = "q"
_TASKS, _REPORTS = keys.tasks(_QUEUE), keys.reports(_QUEUE)
_TASK_KEYS = [_TASKS, keys.inflight(_QUEUE), keys.entries(_QUEUE)]
_IDS = ("t1", "t2", "t3", "t4", "t5")
_WORKERS = ("w1", "w2")
_NODES = ("n1", "n2")
_RATE = 1e-6  # so low that the time which passes makes no difference


class Call(NamedTuple):
    """A script by name with its keys, or a command (then `script` is empty)."""

    script: str
    keys: list[str]
    words: list[Any]


class Draws:
    """`entries`: ids of stream entries that were seen, as the server under test called them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.entries: list[bytes] = []
        self.reports: list[bytes] = []

    def draw(self) -> Call:
        """The next call."""
        name = self._rng.choice(_NAMES)
        call: Call = getattr(self, f"_{name}")()
        return call

    def _command(self, *words: Any) -> Call:
        return Call("", [], list(words))

    def _id(self) -> str:
        return self._rng.choice(_IDS)

    def _token(self) -> int:
        return self._rng.randint(1, 4)

    def _entry(self) -> Any:
        return self._rng.choice(self.entries[-8:]) if self.entries else b"1-0"

    def _report_entry(self) -> Any:
        return self._rng.choice(self.reports[-8:]) if self.reports else b"1-0"

    # Scripts

    def _publish(self) -> Call:
        said = self._rng.choice(("", "-", 4, 10, 900_000_000_000_001))
        words: list[Any] = [keys.WORKERS_GROUP, self._rng.choice(_NODES), 600_000, said]
        words += self._rng.choice((("", ""), ("", ""), (_RATE, 4)))
        trace = self._rng.choice(((), (), ("00-1-2-01",)))
        tasks = [
            [self._id(), str(self._token()), "t", "{}", "1.000", "1", "5.0", _QUEUE, "0", *trace]
            for _ in range(self._rng.randint(0, 3))
        ]
        words += (self._rng.choice(("", "1")), msgspec.msgpack.encode(tasks) if tasks else "")
        names = [*_TASK_KEYS, keys.waiting(_QUEUE), keys.rate(_QUEUE)]
        return Call("publish", names, words)

    def _permits(self) -> Call:
        rng = self._rng
        rate = rng.choice((_RATE, _RATE, _RATE / 2))
        words: list[Any] = [rate, rng.choice((4, 4, 9)), rng.choice(_NODES), 20_000]
        words += [rng.choice((0, 0, 0, 1, 5)), rng.choice((1_000, "")), rng.choice((0, 1, 2))]
        ranks = sorted(rng.choice((5, 900, 2_500, 900_000_000_000_001)) for _ in range(3))
        names = [keys.rate(_QUEUE), keys.waiting_for_rate(_QUEUE)]
        return Call("permits", names, [*words, *ranks[: rng.randint(0, 3)]])

    def _report(self) -> Call:
        items = [
            [self._entry().decode(), *self._rng.choice(([], ["id", self._id(), "token", "1"]))]
            for _ in range(self._rng.randint(1, 2))
        ]
        words = [keys.WORKERS_GROUP, msgspec.msgpack.encode(items)]
        return Call("report", [_TASKS, _REPORTS], words)

    def _settle(self) -> Call:
        if self._rng.random() < 0.5:
            group, stream, entry = keys.WORKERS_GROUP, _TASKS, self._entry()
        else:
            group, stream, entry = keys.NODES_GROUP, _REPORTS, self._report_entry()
        words: list[Any] = [group, keys.WORKERS_GROUP]
        for _ in range(self._rng.randint(1, 3)):
            words += [self._rng.choice((entry, b"")), self._id(), str(self._token())]
        return Call("settle", [stream, *_TASK_KEYS[1:], _TASKS], words)

    def _locate(self) -> Call:
        words: list[Any] = [keys.WORKERS_GROUP]
        for one in _IDS:
            words += [one, self._token()]
        return Call("locate", _TASK_KEYS, words)

    def _supersede(self) -> Call:
        return Call("supersede", _TASK_KEYS, [keys.WORKERS_GROUP, self._id(), self._token()])

    def _forget_consumer(self) -> Call:
        return Call("forget_consumer", [_TASKS], [keys.WORKERS_GROUP, self._rng.choice(_WORKERS)])

    def _beat(self) -> Call:
        names = [keys.NODES_SEEN, keys.NODES_BEATS, keys.NODES_INFO, keys.NODES_GONE]
        times, ttl_ms = self._rng.randint(1, 3), self._rng.choice((600_000, 600_000, -1))
        return Call("beat", names, [self._rng.choice(_NODES), "{}", ttl_ms, times])

    def _statistics(self) -> Call:
        names = [keys.statistics(minute) for minute in (1, 2, 3)]
        if self._rng.random() < 0.3:
            return Call("statistics_read", names, [])
        figures = self._rng.choice((b"\x00\xff", b"figures"))
        words = [self._rng.choice(_NODES), figures, 600_000]
        return Call("statistics_write", [self._rng.choice(names)], words)

    def _lease(self) -> Call:
        leases, holder = [keys.lease(slot) for slot in (1, 2, 3)], self._rng.choice(_NODES)
        if self._rng.random() < 0.3:
            return Call("lease_release", leases, [holder])
        words = [self._rng.choice(("renew", "take", "early")) for _ in leases]
        if self._rng.random() < 0.3:
            words = words[:1]
        return Call("lease_hold", ["kept", *leases], [holder, "600000", *words])

    def _data_mark(self) -> Call:
        return Call("data_mark", [keys.worker(self._rng.choice(_WORKERS))], [])

    def _forget_queue(self) -> Call:
        names = [_TASKS, _REPORTS, *_TASK_KEYS[1:]]
        return Call("forget_queue", names, [keys.WORKERS_GROUP, keys.MARK])

    def _mark(self) -> Call:
        name = self._rng.choice((keys.MARK, "w1"))
        return self._command("XGROUP", "CREATECONSUMER", _TASKS, keys.WORKERS_GROUP, name)

    # Commands

    def _create(self) -> Call:
        stream, group = self._rng.choice(
            ((_TASKS, keys.WORKERS_GROUP), (_REPORTS, keys.NODES_GROUP))
        )
        return self._command("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")

    def _read(self) -> Call:
        after = self._rng.choice((">", ">", "0"))
        return self._command(
            "XREADGROUP", "GROUP", keys.WORKERS_GROUP, self._rng.choice(_WORKERS), "COUNT",
            self._rng.randint(1, 3), "STREAMS", _TASKS, after,
        )  # fmt: skip

    def _read_reports(self) -> Call:
        after = self._rng.choice((">", "0"))
        return self._command(
            "XREADGROUP", "GROUP", keys.NODES_GROUP, self._rng.choice(_NODES), "COUNT", 5,
            "STREAMS", _REPORTS, after,
        )  # fmt: skip

    def _take_over(self) -> Call:
        node = self._rng.choice(_NODES)
        return self._command(
            "XAUTOCLAIM", _REPORTS, keys.NODES_GROUP, node, 0, "0-0", "COUNT", 200, "JUSTID"
        )

    def _pending(self) -> Call:
        words = [_TASKS, keys.WORKERS_GROUP]
        if self._rng.random() < 0.7:
            words += ["IDLE", "0", "-", "+", "10", self._rng.choice(_WORKERS)]
        return self._command("XPENDING", *words)

    def _range(self) -> Call:
        return self._command("XRANGE", self._rng.choice((_TASKS, _REPORTS)), "-", "+", "COUNT", 2)

    def _one(self) -> Call:
        entry = self._entry()
        return self._command("XRANGE", _TASKS, entry, entry)

    def _delete(self) -> Call:
        return self._command("XDEL", _TASKS, self._entry())

    def _acknowledge(self) -> Call:
        return self._command("XACK", _TASKS, keys.WORKERS_GROUP, self._entry())

    def _known(self) -> Call:
        words = self._rng.choice((
            ("SADD", keys.QUEUES, _QUEUE), ("SREM", keys.QUEUES, _QUEUE), ("SMEMBERS", keys.QUEUES),
            ("SISMEMBER", keys.QUEUES, _QUEUE),
        ))  # fmt: skip
        return self._command(*words)

    def _value(self) -> Call:
        key = keys.worker(self._rng.choice(_WORKERS))
        words = self._rng.choice((
            ("SET", key, "1", "PX", 600_000), ("SET", key, "2", "NX"), ("GET", key),
            ("EXISTS", key), ("DEL", key), ("MGET", key, "none"), ("PERSIST", key),
            ("PEXPIRE", key, 600_000), ("HLEN", keys.entries(_QUEUE)),
        ))  # fmt: skip
        return self._command(*words)

    def _tokens(self) -> Call:
        return self._command("HMGET", keys.inflight(_QUEUE), *_IDS)

    def _withdraw(self) -> Call:
        words = self._rng.choice((
            ("ZREM", keys.NODES_SEEN, "n1"), ("HDEL", keys.NODES_BEATS, "n1"),
            ("HDEL", keys.NODES_INFO, "n1"),
        ))  # fmt: skip
        return self._command(*words)

    def _scan(self) -> Call:
        return self._command("HSCAN", keys.inflight(_QUEUE), 0, "COUNT", 200)

    def _flush(self) -> Call:
        if self._rng.random() < 0.7:
            return self._command("DEL", self._rng.choice((_TASKS, _REPORTS)))
        return self._command("FLUSHDB")


_NAMES = sorted(
    name.removeprefix("_")
    for name in vars(Draws)
    if name.startswith("_") and name not in (
        "_command", "_id", "_token", "_entry", "_report_entry",
    ) and not name.startswith("__")
)  # fmt: skip
_NAMES = [name for name in _NAMES if name != "flush"] * 4 + ["flush"]
_NAMES += ["publish", "read", "create", "report", "settle"] * 6
