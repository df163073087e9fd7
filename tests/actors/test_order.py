"""Several nodes share the room of a queue: what is due goes out by priority and due time, whoever has it.

In virtual time: three dispatchers, one store, one stream.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from firing_rig import FakeDatabase, FakeStreams, Firing, NodeStreams, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Due
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import DueRow

SHARES = {"a": (0, 1, 2), "b": (3, 4, 5), "c": (6, 7)}
WINDOW = 40


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of these tests have all there are."""
    monkeypatch.setattr("duly.actors.dispatcher.SLOTS", 8)


class Cluster:
    """Nodes `a`, `b` and `c`; a worker that takes `per_s` tasks a second, if it is started."""

    def __init__(self) -> None:
        self.database = FakeDatabase()
        self.streams = FakeStreams(self.database)
        self.nodes: dict[str, Firing] = {}
        self.links: dict[str, NodeStreams] = {}
        for name, slots in SHARES.items():
            node = Firing(Options(window_floor=WINDOW), self.database, slots)
            self.links[name] = NodeStreams(self.streams, name)
            node.context.streams = cast(Any, self.links[name])
            self.nodes[name] = node

    @asynccontextmanager
    async def running(self, per_s: int = 1_000) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for node in self.nodes.values():
                await stack.enter_async_context(node.running(Dispatcher))
            worker = asyncio.create_task(self._work(per_s))
            yield
            worker.cancel()

    async def _work(self, per_s: int) -> None:
        while True:
            await anyio.sleep(0.01)
            self.streams.consume("q", per_s // 100)

    async def due(self, rows: list[DueRow]) -> None:
        """They are due, each at its node."""
        self.database.put(*rows)
        for node in self.nodes.values():
            own = [row for row in rows if row.slot in node.slots]
            for begin in range(0, len(own), 500):
                await node.context.boxes.dispatcher.send(Due(own[begin : begin + 500]))

    async def published(self, count: int) -> list[DueRow]:
        """Wait for so many; all that are out, in their order."""
        await wait_for(lambda: len(self.streams.ids) >= count, 600, f"{count} are published")
        return [self.database.rows[task_id] for task_id in self.streams.ids]


def overtaken(order: list[DueRow]) -> int:
    """The most tasks that went before one whose turn was earlier."""
    best_first = sorted(order, key=lambda row: (-row.priority, row.next_run_at))
    place = {row.id: number for number, row in enumerate(best_first)}
    return max(number - place[row.id] for number, row in enumerate(order))


def spread(
    count: int, every_s: float, priority: Callable[[int], int] = lambda _: 5
) -> list[DueRow]:
    """Due over the past, each at any node."""
    draw = random.Random(count)
    return [
        due_row(
            -every_s * (count - n),
            number=8 * (count * count + n) + draw.randrange(8),
            priority=priority(n),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("every_s", [0.02, 5.0])
async def test_backlogs_go_out_in_due_order(every_s: float) -> None:
    """Whether the second of slack has many tasks or none."""
    cluster = Cluster()
    async with cluster.running():
        await cluster.due(spread(3_000, every_s))
        order = await cluster.published(3_000)
    assert len(set(cluster.streams.ids)) == 3_000
    assert overtaken(order) <= 6 * WINDOW, overtaken(order)


async def test_a_backlog_drains_as_fast_as_its_workers_fetch() -> None:
    cluster = Cluster()
    began = asyncio.get_running_loop().time()
    async with cluster.running(per_s=2_000):
        await cluster.due(spread(4_000, 5.0))
        await cluster.published(4_000)
    assert asyncio.get_running_loop().time() - began < 1.3 * 4_000 / 2_000


async def test_the_priority_of_another_nodes_task_counts() -> None:
    cluster = Cluster()
    async with cluster.running():
        await cluster.due([due_row(-100, number=8 * n) for n in range(2_000)])  # all of node a
        await cluster.published(300)
        before = len(cluster.streams.ids)
        best = [due_row(0, number=8 * n + 7, priority=9) for n in range(30)]  # of node c
        await cluster.due(best)
        await wait_for(
            lambda: {row.id for row in best} <= set(cluster.streams.ids), 60, "the best are out"
        )
        assert len(cluster.streams.ids) - before <= 4 * WINDOW


async def test_a_mix_of_priorities_goes_out_by_priority() -> None:
    cluster = Cluster()
    async with cluster.running():
        await cluster.due(spread(3_000, 0.1, lambda n: n * 7 % 10))
        order = await cluster.published(3_000)
    assert overtaken(order) <= 6 * WINDOW, overtaken(order)


@pytest.mark.parametrize("trouble", ["stands still", "cannot claim", "is refused"])
async def test_a_node_that_cannot_go_on_holds_up_nobody(trouble: str) -> None:
    """It has the earliest tasks, and has said so."""
    cluster = Cluster()
    rows = [due_row(-1_000, number=8 * n) for n in range(500)]  # of node a, before all others
    rows += [due_row(-100 + n / 100, number=8 * n + 4 + n % 4) for n in range(1_000)]
    async with cluster.running():
        await cluster.due(rows)
        await cluster.published(200)
        stop(cluster, trouble)
        others = [row for row in rows if row.slot not in SHARES["a"]]
        began = asyncio.get_running_loop().time()
        await wait_for(
            lambda: {row.id for row in others} <= set(cluster.streams.ids), 60, "all of the others"
        )
        assert asyncio.get_running_loop().time() - began < 1 + 1.3 * 1_000 / 1_000 + 0.5


def stop(cluster: Cluster, trouble: str) -> None:
    node = cluster.nodes["a"].context
    fetch = cluster.database.fetch

    class Troubled:
        async def fetch(self, name: str, *args: Any) -> Any:
            if trouble == "stands still":
                await anyio.sleep(100)
            if trouble == "cannot claim":
                raise StoreUnavailableError("away")
            if name == "claim":
                args = (*args[:4], [9] * len(args[4]), *args[5:])  # another epoch
            return await fetch(name, *args)

    node.db = cast(Any, Troubled())


async def test_what_was_cancelled_holds_up_nobody() -> None:
    """All that a node had said to have, so that it publishes nothing that would say more."""
    cluster = Cluster()
    rows = [due_row(-1_000, number=8 * n) for n in range(60)]
    others = [due_row(-100, number=8 * n + 7) for n in range(300)]
    async with cluster.running(per_s=0):
        await cluster.due(rows + others)
        await cluster.published(WINDOW)
        await anyio.sleep(2)
        for row in rows:
            if row.id not in cluster.database.claimed:
                cluster.database.put(row._replace(version=row.version + 1))
        began = asyncio.get_running_loop().time()
        while {row.id for row in others} - set(cluster.streams.ids):
            await anyio.sleep(0.01)
            cluster.streams.consume("q", 10)
        assert asyncio.get_running_loop().time() - began < 0.8


async def test_after_an_outage_those_that_notice_its_end_first_wait_for_the_others() -> None:
    cluster = Cluster()
    async with cluster.running():
        await cluster.due(spread(300, 0.5))
        await cluster.published(300)
        for link in cluster.links.values():
            link.cut = ConnectionError("away")
        await cluster.due(spread(2_000, 0.5))
        await anyio.sleep(60)
        cluster.links["a"].cut = None
        await anyio.sleep(0.7)
        cluster.links["c"].cut = None
        await anyio.sleep(0.4)
        cluster.links["b"].cut = None
        order = await cluster.published(2_300)
    # Also what was claimed as the outage began, which is out first.
    assert overtaken(order[300:]) <= 8 * WINDOW, overtaken(order[300:])


async def test_after_an_outage_nobody_waits_long_for_those_that_have_nothing() -> None:
    cluster = Cluster()
    async with cluster.running(per_s=10_000):
        for link in cluster.links.values():
            link.cut = ConnectionError("away")
        await cluster.due([due_row(-10, number=8 * n) for n in range(500)])  # of node a alone
        await anyio.sleep(30)
        for link in cluster.links.values():
            link.cut = None
        began = asyncio.get_running_loop().time()
        await cluster.published(500)
        assert asyncio.get_running_loop().time() - began < 4.5


async def test_after_an_outage_what_finds_room_waits_for_nobody() -> None:
    cluster = Cluster()
    async with cluster.running():
        for link in cluster.links.values():
            link.cut = ConnectionError("away")
        await cluster.due(spread(WINDOW // 2, 1.0))
        await anyio.sleep(30)
        for link in cluster.links.values():
            link.cut = None
        began = asyncio.get_running_loop().time()
        await cluster.published(WINDOW // 2)
        assert asyncio.get_running_loop().time() - began < 1.0


async def test_a_queue_with_room_costs_no_question_and_no_wait() -> None:
    cluster = Cluster()
    async with cluster.running(per_s=100_000):
        for number in range(200):
            began = asyncio.get_running_loop().time()
            await cluster.due([due_row(-1, number=8 * number + share) for share in (0, 3, 7)])
            await cluster.published(3 * number + 3)
            assert asyncio.get_running_loop().time() - began < 0.03
            await anyio.sleep(0.02)
    assert cluster.streams.looks == 0


async def test_a_node_that_has_every_slot_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SHARES, "a", tuple(range(8)))
    cluster = Cluster()
    del cluster.nodes["b"], cluster.nodes["c"]
    began = asyncio.get_running_loop().time()
    async with cluster.running(per_s=100_000):
        cluster.links["a"].cut = ConnectionError("away")
        await cluster.due(spread(2_000, 0.5))
        await anyio.sleep(10)
        cluster.links["a"].cut = None
        await wait_for(lambda: cluster.streams.ids, 10, "the first is out")
        began = asyncio.get_running_loop().time()
        order = await cluster.published(2_000)
        assert asyncio.get_running_loop().time() - began < 1
    assert overtaken(order) == 0
