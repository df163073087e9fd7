"""Concurrency keys and max_in_flight over several nodes: never one too many, also while workers are killed."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
from hand_worker import HandWorker, Taken
from node_rig import RunningNode, running_node
from store_rig import opened, query
from waiting import wait_for

from duly.storage import queues
from duly.storage.audit import Note

NODES = 3
DONE_S = 150.0
SOON: dict[str, Any] = {"type": "t", "backoff": {"kind": "fixed", "delay": 0}}


class Crew:
    """Workers that can be killed, and what is at work at each moment, as they see it."""

    def __init__(self, redis_url: str, queue: str, hold_s: float) -> None:
        self._url = redis_url
        self._queue = queue
        self._hold_s = hold_s
        self._names = (f"hand-{number}" for number in itertools.count())
        self._at_work: dict[str, set[str]] = {}
        self._lives: dict[str, anyio.CancelScope] = {}
        self.done: Counter[str] = Counter()
        self.most = 0

    async def work(self, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        """One worker's life, until it is cancelled: it lets go of nothing, as after a kill."""
        name = next(self._names)
        async with HandWorker(self._url, name, self._queue) as hand:
            await hand.live_and_join()
            self._at_work[name] = set()
            with anyio.CancelScope() as self._lives[name]:
                async with anyio.create_task_group() as efforts:
                    task_status.started()
                    while True:
                        for taken in await hand.read():
                            efforts.start_soon(self._do, hand, taken)
                        await anyio.sleep(0.02)
            self._at_work.pop(name)
            await hand.die()

    async def _do(self, hand: HandWorker, taken: Taken) -> None:
        if not await hand.may_begin(taken):
            return
        self._at_work[hand.name].add(taken.id)
        self.most = max(self.most, sum(len(some) for some in self._at_work.values()))
        await anyio.sleep(self._hold_s)
        self._at_work[hand.name].discard(taken.id)
        self.done[taken.id] += 1  # before it is reported: a kill may come in between
        await hand.report(taken)

    def kill_one(self) -> bool:
        """Kill a worker in the middle of its work; False if none is at work."""
        busy = [name for name, tasks in self._at_work.items() if tasks]
        if busy:
            self._lives[busy[0]].cancel()
        return bool(busy)

    def end(self) -> None:
        """Kill them all."""
        for life in self._lives.values():
            life.cancel()


@asynccontextmanager
async def cluster(database_url: str, redis_url: str) -> AsyncIterator[list[RunningNode]]:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                running_node(database_url, redis_url, owns_slots=not number)
            )
            for number in range(NODES)
        ]
        counts = [node.context.vitals for node in nodes]
        await wait_for(lambda: all(one.owned_slots for one in counts), 60, "all have slots")
        yield nodes


async def watch(node: RunningNode, looks: list[int]) -> None:
    """How many run, in PostgreSQL, again and again."""
    while True:
        looks.append(await node.count("tasks where status = 'running'"))
        await asyncio.sleep(0.05)


async def held_through_kills(
    nodes: list[RunningNode], crew: Crew, ids: list[str], kills: int, limit: int
) -> None:
    """Run it all, and kill a worker now and then in the middle of its work."""
    looks: list[int] = []

    async def is_killed_after(done: int) -> bool:
        return len(crew.done) > done and crew.kill_one()

    async def all_done() -> bool:
        return await nodes[0].count() == 0

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch, nodes[0], looks)
        async with anyio.create_task_group() as working:
            for _ in range(3):
                await working.start(crew.work)
            for _ in range(kills):
                await wait_for(partial(is_killed_after, len(crew.done)), DONE_S, "they work")
                await working.start(crew.work)
            await wait_for(all_done, DONE_S, "all is done")
            crew.end()
        watching.cancel_scope.cancel()
    assert set(crew.done) == set(ids)
    assert max(looks) <= limit, "too many ran, by PostgreSQL"
    assert crew.most <= limit, "too many ran, by the workers"
    assert limit in looks, "it never was full"


async def test_a_key_of_three_is_held_through_worker_kills(
    fresh_database: str, redis_url: str
) -> None:
    """Never a fourth, whatever dies; what a dead worker held is free once its loss is recorded."""
    async with cluster(fresh_database, redis_url) as nodes:
        batch = [{**SOON, "queue": "a", "concurrency_key": "k", "concurrency_limit": 3}] * 40
        answer = await nodes[0].call("POST", "/v1/tasks/batch", {"tasks": batch})
        crew = Crew(redis_url, "a", hold_s=0.2)
        await held_through_kills(nodes, crew, answer.body["ids"], kills=3, limit=3)


async def test_max_in_flight_is_held_through_worker_kills(
    fresh_database: str, redis_url: str
) -> None:
    async with cluster(fresh_database, redis_url) as nodes:
        change = queues.ControlChange(set_max_in_flight=True, max_in_flight=4)
        note = Note(None, "admin", "change queue")
        await queues.control(nodes[0].context.db, "b", change, datetime.now(UTC), note)

        def known() -> bool:
            return all(one.context.controls.of("b").max_in_flight == 4 for one in nodes)

        await wait_for(known, 60, "every node knows")
        batch = [{**SOON, "queue": "b"}] * 40
        answer = await nodes[1].call("POST", "/v1/tasks/batch", {"tasks": batch})
        crew = Crew(redis_url, "b", hold_s=0.2)
        await held_through_kills(nodes, crew, answer.body["ids"], kills=3, limit=4)


async def test_a_key_without_room_is_in_nobodys_way(fresh_database: str, redis_url: str) -> None:
    async with cluster(fresh_database, redis_url) as nodes:
        await nodes[0].running_task(concurrency_key="k", priority=9)
        urgent = [{"type": "t", "priority": 9, "concurrency_key": "k"}] * 1500
        plain = [{"type": "t", "priority": 0}] * 30
        for tasks in (urgent, plain):
            answer = await nodes[1].call("POST", "/v1/tasks/batch", {"tasks": tasks})
        others = set(answer.body["ids"])

        async def all_claimed() -> bool:
            return await nodes[0].count("tasks where status = 'running'") == 31

        await wait_for(all_claimed, 60, "those without the key are claimed")
        rows = await nodes[2].client.list(status="running", limit=100)
        assert others <= {str(task.id) for task in rows}


async def test_the_next_starts_soon_after_a_cancel(fresh_database: str, redis_url: str) -> None:
    async with cluster(fresh_database, redis_url) as nodes:
        first = await nodes[0].running_task(concurrency_key="k")
        second = await nodes[1].client.submit("t", concurrency_key="k")
        assert (await nodes[2].client.get(second.id)).status == "pending"
        await nodes[2].client.cancel(first.id)

        async def claimed() -> bool:
            return (await nodes[2].client.get(second.id)).status == "running"

        await wait_for(claimed, 60, "the second one is claimed")


async def test_a_lone_tenant_is_not_behind_the_crowd(fresh_database: str, redis_url: str) -> None:
    """A hundred of one tenant and three of another, more than the workers take at once."""
    async with running_node(fresh_database, redis_url, window_floor=5) as node:
        crowd = [{"type": "t", "fairness_key": "crowd"}] * 100
        few = [{"type": "t", "fairness_key": "few"}] * 3
        await node.call("POST", "/v1/tasks/batch", {"tasks": crowd})
        answer = await node.call("POST", "/v1/tasks/batch", {"tasks": few})
        await wait_for(lambda: node.context.vitals.ready_entries >= 98, 60, "all of it is due")
        async with HandWorker(redis_url) as hand:
            await hand.live_and_join()
            order: list[str] = []
            while not set(answer.body["ids"]) <= set(order):
                taken = await hand.take()
                order.append(taken.id)
                await hand.report(taken)
        assert len(order) <= 5 + 4 * 3, "what was in the stream, and then one of each in turn"


async def test_a_node_that_starts_with_a_backlog_serves_every_tenant_first(
    fresh_database: str, redis_url: str
) -> None:
    """More of one tenant than a node keeps in memory, due before the few of the other."""
    async with opened(fresh_database) as db:
        await query(
            db,
            """insert into tasks (id, type, queue, payload, next_run_at, occurrence, created_at,
                                  updated_at, fairness_key)
               select gen_random_uuid(), 't', 'default', 'null', $1, $1, $1, $1,
                      case when n <= 25000 then 'crowd' when n <= 25010 then 'few' end
               from generate_series(1, 25013) n""",
            datetime.now(UTC) - timedelta(hours=1),
        )
        rows = await query(
            db,
            "update tasks set next_run_at = next_run_at + interval '50 minutes' "
            "where fairness_key is distinct from 'crowd' returning id",
        )
    others = {str(row["id"]) for row in rows}
    async with (
        running_node(fresh_database, redis_url, window_floor=20) as node,
        HandWorker(redis_url) as hand,
    ):
        await hand.live_and_join()
        vitals = node.context.vitals
        await wait_for(lambda: vitals.ready_entries > 8_000, 60, "it holds what it can")
        order: list[str] = []

        async def all_begun() -> bool:
            for taken in await hand.read(20):
                order.append(taken.id)
                await hand.report(taken)
            return others <= set(order)

        await wait_for(all_begun, 120, "everyone of the others has begun")
    assert len(order) < 1_000
