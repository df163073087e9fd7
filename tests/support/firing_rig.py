"""The firing path without servers: a store and a conveyor in memory, on the event loop's own clock.

Run it in virtual time (`virtual_time.VIRTUAL_TIME`): the cluster's clock follows the loop's.
"""

import asyncio
import itertools
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby, islice, zip_longest
from typing import Any, NamedTuple, cast
from uuid import UUID

import anyio
from actor_rig import served
from swept import Found, swept

from duly.actors.context import Context, Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Ownership
from duly.actors.prefetcher import Prefetcher
from duly.actors.runtime import Actor, Child, Supervisor
from duly.actors.ticker import Ticker
from duly.storage import keys
from duly.storage.claims import Claimed
from duly.storage.errors import StoreUnavailableError
from duly.storage.permits import Rate
from duly.storage.slots import BEGINNING, DueRow
from duly.storage.stream_facts import NOTHING_WAITS, Backlog
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import from_us, to_us

START_US = 1_790_000_000_000_000
"""Cluster time when the loop's clock is 0."""

TIMEOUT_S = 5.0
"""Of a statement."""

SLOTS = tuple(range(8))
FIRST_NUMBER = 1 << 32  # above all that tests choose themselves; of the first slot
_numbers = itertools.count(FIRST_NUMBER)


def at(seconds: float) -> datetime:
    """Cluster time `seconds` after the start."""
    return from_us(START_US + round(seconds * 1e6))


def due_row(
    due_s: float,
    *,
    number: int | None = None,
    priority: int = 5,
    queue: str = "q",
    version: int = 0,
    key: str | None = None,
    fair: str | None = None,
) -> DueRow:
    """A row due `due_s` after the start; rows of one number are the same task."""
    number = next(_numbers) if number is None else number
    slot = SLOTS[number % len(SLOTS)]
    return DueRow(UUID(int=number), slot, at(due_s), version, priority, queue, key, fair)


class Record:
    """Iterates over its values, as asyncpg's does."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return self._values.items()


class FakeDatabase:
    """Tasks by id; the statements of the firing path, each to its end whatever becomes of the caller."""

    latency_s = 0.002

    def __init__(self) -> None:
        self.rows: dict[UUID, DueRow] = {}
        self._waiting: dict[UUID, DueRow] = {}
        self.claimed: dict[UUID, str] = {}
        self.errors: deque[tuple[str, Exception, bool]] = deque()
        """(statement, error, whether it takes effect all the same) of the next such statements."""
        self.epoch = 1
        self.limits: dict[str, int] = {}
        """How many run at once with a concurrency key, if not one."""
        self.queue_limits: dict[str, int] = {}
        """max_in_flight of the queues that are claimed by it."""
        self.most_in_queue = 0
        self.most_running: Counter[str] = Counter()
        """How many did, by key."""
        self.calls: Counter[str] = Counter()
        self.controls_state = 0
        """Of what is set of queues (see `queues.state`)."""
        self.rows_read = 0
        self.rows_looked_at = 0  # of queues and keys to leave out
        self.left_behind_s = 0.0
        """What a slot takes to read from its beginning, for what no vacuum can remove."""

    def put(self, *rows: DueRow) -> None:
        """Insert or change pending tasks."""
        for row in rows:
            self.rows[row.id] = self._waiting[row.id] = row

    async def fetch(self, name: str, *args: Any) -> list[Record]:
        """As `Database.fetch`."""
        return await asyncio.shield(asyncio.ensure_future(self._fetch(name, *args)))

    async def _fetch(self, name: str, *args: Any) -> list[Record]:
        await self._take_time(name, *args)
        self.calls[name] += 1
        if self.errors and self.errors[0][0] == name:
            _, error, takes_effect = self.errors.popleft()
            if takes_effect:
                getattr(self, f"_{name}")(*args)
            raise error
        return cast(list[Record], getattr(self, f"_{name}")(*args))

    async def _take_time(self, name: str, *args: Any) -> None:
        needs_s = self.latency_s
        if name == "sweep" or (name == "due_best" and args[-1] is None):
            needs_s += self.left_behind_s * len(args[0])
        elif name in ("due", "due_but", "sweep_by_slot"):
            needs_s += self.left_behind_s * (len(args[0]) - len(args[1]))
        await anyio.sleep(min(needs_s, TIMEOUT_S))
        if needs_s > TIMEOUT_S:
            raise StoreUnavailableError("PostgreSQL: canceling statement due to statement timeout")

    def _claim(
        self, ids: list[UUID], versions: list[int], owner: str, slots: list[int],
        epochs: list[int], *_: Any,
    ) -> list[Record]:  # fmt: skip
        if any(epoch != self.epoch for epoch in epochs):
            return [Record({"owned": False, "id": None})]
        taken = []
        for task_id, version in zip(ids, versions, strict=True):
            row = self.rows.get(task_id)
            if row is not None and row.version == version and task_id not in self.claimed:
                self.rows[task_id] = row._replace(version=version + 1)
                self.claimed[task_id] = owner
                del self._waiting[task_id]
                taken.append(task_id)
        return [Record({"owned": True, **self._task(i)}) for i in taken] or [
            Record({"owned": True, "id": None})
        ]

    def _claim_in_turn(
        self, ids: list[UUID], versions: list[int], owner: str, slots: list[int],
        epochs: list[int], now: datetime, inline: int, keys: list[str | None], queue: str | None,
    ) -> list[Record]:  # fmt: skip
        running, in_queue = self.running_keys(), self.in_queue(queue)
        chosen, found = [], []
        for task_id, version, key in zip(ids, versions, keys, strict=True):
            if task_id in self._waiting and self.rows[task_id].version == version:
                key_is_full = key is not None and running[key] >= self.limits.get(key, 1)
                if key_is_full or in_queue >= self.queue_limits.get(queue or "", math.inf):
                    blank = dict.fromkeys(self._task(task_id))
                    held = "full" if key_is_full else "queue_full"
                    said = {"held_id": task_id, "held": held}
                    found.append(Record({"owned": True, **blank, **said}))
                    continue
                in_queue += 1
                if key is not None:
                    running[key] += 1
                chosen.append((task_id, version))
        some = [one[0] for one in chosen], [one[1] for one in chosen]
        claimed = self._claim(*some, owner, slots, epochs) if chosen else []
        self.most_running |= self.running_keys()
        self.most_in_queue = max(self.most_in_queue, self.in_queue(queue))
        said = {"held_id": None, "held": None}
        return found + [Record({**dict(one.items()), **said}) for one in claimed]

    def running_keys(self) -> Counter[str]:
        """How many run with each concurrency key."""
        keys = (self.rows[task_id].concurrency_key for task_id in self.claimed)
        return Counter(key for key in keys if key is not None)

    def in_queue(self, queue: str | None) -> int:
        """How many of a queue run."""
        return sum(self.rows[task_id].queue == queue for task_id in self.claimed)

    def end(self, task_id: UUID) -> None:
        """A task is over."""
        del self.claimed[task_id]
        del self.rows[task_id]

    def _claimed(self, ids: list[UUID], versions: list[int], owner: str, *_: Any) -> list[Record]:
        return [Record(self._task(i)) for i in ids if self.claimed.get(i) == owner]

    def _running(self, ids: list[UUID], versions: list[int]) -> list[Record]:
        pairs = zip(ids, versions, strict=True)
        return [
            Record(self._task(i))
            for i, v in pairs
            if i in self.claimed and self.rows[i].version == v
        ]

    def _expire(self, *_: Any) -> list[Record]:
        return []

    def _due(
        self, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime, per_slot: int
    ) -> list[Record]:  # fmt: skip
        pages = self._pages(slots, ats, after, before)
        return self._read([row for page in pages for row in page[:per_slot]])

    def _sweep(self, slots: list[int], before: datetime, limit: int) -> list[Record]:
        pages = islice(chain(*self._pages(sorted(slots), [], [], before)), limit)
        return self._swept([list(page) for _, page in groupby(pages, key=lambda row: row.slot)])

    def _sweep_by_slot(
        self, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime, per_slot: int
    ) -> list[Record]:  # fmt: skip
        return self._swept([page[:per_slot] for page in self._pages(slots, ats, after, before)])

    def _swept(self, pages: list[list[DueRow]]) -> list[Record]:
        found = [
            [Found(row.queue, row.slot, row.next_run_at, row.id, row.version) for row in page]
            for page in pages
        ]
        return [Record(row) for row in swept(found, self.controls_state)]

    def _pending_tasks(self, ids: list[UUID]) -> list[Record]:
        found = [row for row in self._pending() if row.id in ids]
        return self._read(sorted(found, key=lambda row: (row.next_run_at, row.id)))

    def _due_but(
        self, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime,
        per_slot: int, without: list[str], without_until: datetime, of_queues: list[str],
        without_keys: list[str], looked_at: int,
    ) -> list[Record]:  # fmt: skip
        left_out = set(zip(of_queues, without_keys, strict=True))
        found = []
        for page in self._pages(slots, ats, after, before):
            wanted = 0
            for place, row in enumerate(page[:looked_at], 1):
                self.rows_looked_at += 1
                is_left_out = (
                    row.queue in without or (row.queue, row.concurrency_key) in left_out
                ) and row.next_run_at <= without_until
                wanted += not is_left_out
                if not is_left_out or place == looked_at:
                    more = {"wanted": not is_left_out, "more": place == looked_at}
                    found.append(Record({**row._asdict(), **more}))
                if wanted == per_slot:
                    break
        self.rows_read += len(found)
        return found

    def _pages(
        self, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime
    ) -> list[list[DueRow]]:
        begun = list(zip(ats, after, strict=True))
        cursors = dict(zip_longest(slots, begun, fillvalue=(BEGINNING.at, BEGINNING.id)))
        pages: dict[int, list[DueRow]] = {slot: [] for slot in slots}
        for row in self._pending():
            if (
                row.next_run_at < before
                and row.slot in cursors
                and (row.next_run_at, row.id) > cursors[row.slot]
            ):
                pages[row.slot].append(row)
        return [sorted(page, key=lambda row: (row.next_run_at, row.id)) for page in pages.values()]

    def _due_best(
        self, slots: list[int], queue: str, now: datetime, limit: int,
        without_keys: list[str] | None, unfair: bool, per_slot: int, looked_at: int | None, since: datetime | None,
    ) -> list[Record]:  # fmt: skip
        found = [
            row
            for row in self._pending()
            if row.slot in slots and row.queue == queue and row.next_run_at <= now
            and row.concurrency_key not in (without_keys or ())
            and (without_keys is not None or row.concurrency_key is None)
            and not (unfair and row.fairness_key is not None)
            and (row.priority != 5 or since is None or row.next_run_at >= since)
        ]  # fmt: skip
        found.sort(key=lambda row: (-row.priority, row.next_run_at))
        return self._read(found[:limit])

    def _fair_keys(self, queue: str, after: str, limit: int) -> list[Record]:
        keys = {row.fairness_key for row in self._pending() if row.queue == queue}
        found = sorted(key for key in keys if key is not None and key > after)
        return [Record({"fairness_key": key}) for key in found[:limit]]

    def _due_fair(
        self, slots: list[int], queue: str, keys: list[str], now: datetime, limit: int,
        without_keys: list[str],
    ) -> list[Record]:  # fmt: skip
        found: list[DueRow] = []
        for key in keys:
            some = [
                row
                for row in self._pending()
                if row.slot in slots and row.queue == queue and row.next_run_at <= now
                and row.fairness_key == key and row.concurrency_key not in without_keys
            ]  # fmt: skip
            found += sorted(some, key=lambda row: (-row.priority, row.next_run_at))[:limit]
        return self._read(found)

    def _due_of_key(
        self, slots: list[int], queue: str, key: str, now: datetime, limit: int
    ) -> list[Record]:
        found = [
            row
            for row in self._pending()
            if row.slot in slots and row.queue == queue and row.next_run_at <= now
            and row.concurrency_key == key
        ]  # fmt: skip
        found.sort(key=lambda row: (-row.priority, row.next_run_at))
        return self._read(found[:limit])

    def _read(self, rows: list[DueRow]) -> list[Record]:
        self.rows_read += len(rows)
        return [Record(row._asdict()) for row in rows]

    def _pending(self) -> Iterable[DueRow]:
        return self._waiting.values()

    def _task(self, task_id: UUID) -> dict[str, Any]:
        row = self.rows[task_id]
        return Claimed(
            task_id, row.version, "t", row.queue, row.next_run_at, 0, 300.0, "retry", "null"
        )._asdict()


class Published(NamedTuple):
    """What came into a stream, and when (microseconds on the cluster's clock)."""

    id: UUID
    token: int
    queue: str
    at_us: int


class FakeStreams:
    """Streams of task ids; a worker takes from them by `consume`."""

    latency_s = 0.001

    def __init__(self, database: FakeDatabase) -> None:
        self._database = database
        self._said: dict[tuple[str, str], tuple[int, float]] = {}  # by queue and node
        self.published: list[Published] = []
        self.undelivered: Counter[str] = Counter()
        self.most_undelivered: Counter[str] = Counter()
        self.looks = 0
        self.errors: deque[Exception] = deque()
        self.endless = False  # True: workers take everything at once
        self.signals = FakeSignals(self)

    async def publish(
        self,
        queue: str,
        tasks: Sequence[Claimed],
        waiting: int | None = None,
        rate: Rate | None = None,
        node: str = "node",
        *,
        first: bool = False,
    ) -> Backlog:
        """As `Streams.publish` of a node; without rates."""
        assert rate is None
        await self.travel()
        for task in tasks:
            assert task.id in self._database.claimed, "published before it was claimed"
            assert now_us() >= to_us(task.occurrence), "published before its due time"
            self.published.append(Published(task.id, task.token, queue, now_us()))
        if not self.endless:
            self.undelivered[queue] += len(tasks)
        self.most_undelivered |= self.undelivered
        return self._backlog(queue, waiting, node)

    async def backlog(self, queue: str, waiting: int | None = None, node: str = "node") -> Backlog:
        """As `Streams.backlog` of a node."""
        self.looks += 1
        await self.travel()
        return self._backlog(queue, waiting, node)

    def _backlog(self, queue: str, waiting: int | None, node: str) -> Backlog:
        now = asyncio.get_running_loop().time()
        if waiting == NOTHING_WAITS:
            self._said.pop((queue, node), None)
        elif waiting is not None:
            self._said[queue, node] = (waiting, now)
        others = [
            rank
            for (its_queue, its_node), (rank, at_s) in self._said.items()
            if its_queue == queue and its_node != node and now - at_s < keys.WAITING_TTL_MS / 1000
        ]
        return Backlog(self.undelivered[queue], 0, len(others), min(others, default=None))

    async def probe(self) -> None:
        """As `Streams.probe`."""
        await self.travel()

    def consume(self, queue: str, count: int) -> None:
        """A worker fetches so many."""
        self.undelivered[queue] -= min(count, self.undelivered[queue])

    async def travel(self) -> None:
        """To the server; or an error on the way."""
        await anyio.sleep(self.latency_s)
        if self.errors:
            raise self.errors.popleft()

    @property
    def ids(self) -> list[UUID]:
        """What was published, in order."""
        return [one.id for one in self.published]


class FakeSignals:
    """What was said to other nodes."""

    def __init__(self, streams: FakeStreams) -> None:
        self._streams = streams
        self.woken: list[tuple[str, bytes]] = []
        self.freed: list[bytes] = []

    async def wake(self, node_id: str, message: bytes) -> None:
        """As `Signals.wake`."""
        await self._streams.travel()
        self.woken.append((node_id, message))

    async def tell_freed(self, message: bytes) -> None:
        """As `Signals.tell_freed`."""
        await self._streams.travel()
        self.freed.append(message)


class NodeStreams:
    """What one of several nodes sees of the streams. `cut`: an error for all that it asks."""

    def __init__(self, streams: FakeStreams, node: str) -> None:
        self._streams = streams
        self._node = node
        self.cut: Exception | None = None

    async def publish(
        self,
        queue: str,
        tasks: Sequence[Claimed],
        waiting: int | None = None,
        rate: Rate | None = None,
        *,
        first: bool = False,
    ) -> Backlog:
        """As `Streams.publish`."""
        await self.probe()
        return await self._streams.publish(queue, tasks, waiting, rate, self._node, first=first)

    async def backlog(self, queue: str, waiting: int | None = None) -> Backlog:
        """As `Streams.backlog`."""
        await self.probe()
        return await self._streams.backlog(queue, waiting, self._node)

    async def probe(self) -> None:
        """As `Streams.probe`."""
        if self.cut is not None:
            raise self.cut


def now_us() -> int:
    """True cluster time, by the loop's clock."""
    return START_US + round(asyncio.get_running_loop().time() * 1e6)


@dataclass
class Firing:
    """A context of fakes, and what is behind it."""

    options: Options = field(default_factory=Options)
    database: FakeDatabase = field(default_factory=FakeDatabase)
    slots: Sequence[int] = SLOTS

    def __post_init__(self) -> None:
        self.streams = FakeStreams(self.database)
        clock = ClusterClock(lambda: asyncio.get_running_loop().time())
        self.context = Context(
            node_id="node",
            options=self.options,
            db=cast(Any, self.database),
            api_db=cast(Any, self.database),
            streams=cast(Any, self.streams),
            lease_servers=cast(Any, None),
            members=cast(Any, None),
            statistics=cast(Any, None),
            clock=clock,
        )
        now = clock.monotonic()
        clock.observe(now, now, now_us())

    def own(self, slots: Sequence[int] | None = None, epoch: int = 1, for_s: float = 1e9) -> None:
        """Say what the node owns from now on; the actors are told at once, and again and again."""
        until = self.context.clock.monotonic() + for_s
        owned = self.slots if slots is None else slots
        self._ownership = Ownership(dict.fromkeys(owned, epoch), until)
        self._tell()

    def _tell(self) -> None:
        boxes = self.context.boxes
        for box in (boxes.ticker, boxes.dispatcher, boxes.prefetcher):
            box.offer(self._ownership)

    @asynccontextmanager
    async def running(
        self, *actors: type[Actor[Any]], may_crash: bool = False, tell_s: float = 1.0
    ) -> AsyncIterator[Supervisor]:
        """Ticker, dispatcher and prefetcher (or the actors given) under a supervisor, owning all."""
        kinds = actors or (Ticker, Dispatcher, Prefetcher)
        self.own()
        supervisor = Supervisor(
            "firing",
            [self._child(kind) for kind in kinds],
            strategy="rest_for_one",
            max_restarts=1_000_000 if may_crash else 0,
        )
        async with served(supervisor) as tasks:
            telling = anyio.CancelScope()
            tasks.start_soon(self._keep_telling, telling, tell_s)
            yield supervisor
            telling.cancel()
        errors = [one.last_error for one in supervisor.statistics() if one.last_error]
        assert may_crash or not errors, errors

    async def _keep_telling(self, scope: anyio.CancelScope, every_s: float) -> None:
        with scope:  # as the lease actor does
            while True:
                await anyio.sleep(every_s)
                self._tell()

    def _child(self, kind: Any) -> Child:
        return Child(kind.name, lambda: kind(self.context))
