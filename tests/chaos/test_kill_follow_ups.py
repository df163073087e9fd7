"""Workers and nodes are killed while outcomes with follow-ups are recorded: one follow-up for each, and no start too early."""

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from chaos_rig import QUICK
from cutting_proxy import CuttingProxy, cutting_proxy
from processes import Child, Processes
from waiting import wait_for

from duly.nodes.client import Client
from duly.storage.ids import uuid7

pytestmark = pytest.mark.chaos

PARENTS = 300
JOINS = 100
OF_EACH = 3  # so many parents has each that waits
SPREAD_S = 5.0  # over which the parents come due
END_S = 120.0
CLOCKS = timedelta(
    milliseconds=20
)  # by so much those of worker and node may differ, with what is rounded
_SUPPORT = str(Path(__file__).parents[1] / "support")
RETRIED = {"max_retries": 10, "backoff": {"kind": "fixed", "delay": 0.2, "jitter": 0}}


class Cast:
    """Two nodes, the API of which is on two ports, and two workers; all of them may be started anew."""

    def __init__(self, processes: Processes, database_url: str, redis_url: str) -> None:
        self._processes = processes
        self._env = {
            **QUICK,
            "DULY_DATABASE_URL": database_url,
            "DULY_REDIS_URL": redis_url,
            "PYTHONPATH": os.pathsep.join([_SUPPORT, os.environ.get("PYTHONPATH", "")]),
        }
        self.ports = [_free_port(), _free_port()]
        self.nodes = [self.node(at) for at in range(2)]
        self.workers = [self.worker() for _ in range(2)]

    def node(self, at: int) -> Child:
        env = {**self._env, "DULY_PORT": str(self.ports[at])}
        return self._processes.python("-m", "duly", "node", env=env)

    def worker(self) -> Child:
        return self._processes.python("-m", "duly", "worker", "follow_worker:worker", env=self._env)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def proxy(fresh_database: str) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(fresh_database) as made:
        yield made


@pytest.fixture
async def store(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    yield connection
    await connection.close()


def family() -> tuple[list[dict[str, Any]], dict[UUID, list[UUID]]]:
    """What is submitted, and of each task that waits whom it waits for. Every fifth waits for one that fails, too."""
    ids = [uuid7(n) for n in range(PARENTS)]
    tasks: list[dict[str, Any]] = [
        {
            "type": "parent", "id": str(one), "payload": n, "delay": SPREAD_S * n / PARENTS, **RETRIED,
            "on_success": {"type": "then", "payload": "good", **RETRIED},
            "on_failure": {"type": "then", "payload": "bad", **RETRIED},
        }
        for n, one in enumerate(ids)
    ]  # fmt: skip
    joins = {}
    for n in range(JOINS):
        first = PARENTS * n // JOINS // 2 * 2  # an even one
        numbers = [(first + 50 * k) % PARENTS for k in range(OF_EACH)]
        if n % 5 == 0:
            numbers[-1] += 1
        join = uuid7(PARENTS + n)
        joins[join] = [ids[number] for number in numbers]
        after = [str(one) for one in joins[join]]
        tasks.append({"type": "join", "id": str(join), "after": after, **RETRIED})
    return tasks, joins


async def submitted(port: int, tasks: list[dict[str, Any]]) -> None:
    async with Client(f"http://127.0.0.1:{port}") as client:

        async def accepted() -> bool:
            await client.submit_batch(tasks)
            return True

        await wait_for(accepted, 60, "a node takes the tasks", ignore=(Exception,))


async def recorded(store: Any, share: float) -> None:
    """Wait until so many outcomes of parents are recorded."""

    async def look() -> bool:
        count = await store.fetchval("select count(*) from finished_tasks where type = 'parent'")
        return bool(count >= share * PARENTS)

    await wait_for(look, END_S, f"{share:.0%} of the parents have ended")


async def all_ended(store: Any) -> None:
    async def look() -> bool:
        left = await store.fetchval("select count(*) from tasks")
        return bool(left == 0)

    await wait_for(look, END_S, "all tasks have ended", poll_s=0.1)


async def reported_again(store: Any, port: int) -> set[int]:
    """Report each outcome of parents once more, by HTTP: the statuses of the answers."""
    rows = await store.fetch(
        "select task_id, token, outcome from runs where type in ('parent', 'then')"
    )
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def report(row: Any) -> int:
            body = {"token": row["token"], "outcome": "completed", "result": "late"}
            async with session.post(f"/v1/tasks/{row['task_id']}/report", json=body) as answer:
                return answer.status

        return {await report(row) for row in rows[::10]}


def starts(children: list[Child]) -> Counter[tuple[UUID, int]]:
    """How often each attempt of what prints its starts was started."""
    lines = [line.split() for child in children for line in child.output.splitlines()]
    return Counter(
        (UUID(line[1]), int(line[2])) for line in lines if len(line) == 3 and line[0] == "start"
    )


async def test_each_outcome_has_one_follow_up_whatever_is_killed(
    processes: Processes, proxy: CuttingProxy, redis_url: str, store: Any
) -> None:
    cast = Cast(processes, proxy.url, redis_url)
    workers = list(cast.workers)
    tasks, joins = family()
    await submitted(cast.ports[0], tasks)

    await recorded(store, 0.1)
    cast.workers[0].kill9()
    workers.append(cast.worker())
    await recorded(store, 0.25)
    cast.nodes[0].kill9()
    cast.nodes[0] = cast.node(0)
    await recorded(store, 0.45)
    proxy.cut_all()
    await recorded(store, 0.6)
    assert await asyncio.to_thread(cast.nodes[1].stop) == 0
    await all_ended(store)

    async def late_reports() -> bool:
        return await reported_again(store, cast.ports[0]) == {409}

    await wait_for(
        late_reports, 60, "late reports are refused", ignore=(aiohttp.ClientError, OSError)
    )
    await check_follow_ups(store)
    await check_joins(store, joins)
    counted = starts(workers)
    runs = await store.fetch(
        "select task_id, token from runs where type in ('then', 'join') and token > 0"
    )
    assert set(counted.values()) == {1}
    assert counted.keys() <= {(row["task_id"], row["token"]) for row in runs}


async def check_follow_ups(store: Any) -> None:
    rows = await store.fetch("select id, payload, status from finished_tasks where type = 'parent'")
    wanted = {}
    for row in rows:
        n = int(row["payload"])
        bad, one = n % 2 == 1, str(row["id"])
        assert row["status"] == ("failed" if bad else "completed")
        wanted[one] = ["bad", one, "failed", None] if bad else ["good", one, "completed", {"n": n}]
    assert len(wanted) == PARENTS
    followers = await store.fetch(
        "select id, status, result from finished_tasks where type = 'then'"
    )
    assert {row["status"] for row in followers} == {"completed"}
    told = [json.loads(row["result"]) for row in followers]
    assert len(told) == PARENTS
    assert {one[1]: one[:4] for one in told} == wanted
    assert all((one[4] is not None) == (one[2] == "failed") for one in told)
    named = await store.fetch("select task_id, follow_up from runs where follow_up is not null")
    of_parent = {one[1]: row["id"] for one, row in zip(told, followers, strict=True)}
    assert {str(row["task_id"]): row["follow_up"] for row in named} == of_parent
    assert len(named) == PARENTS
    ended = "select count(*) from runs where type in ('parent', 'then') and verdict is not null"
    assert await store.fetchval(ended) == 2 * PARENTS


async def check_joins(store: Any, joins: dict[UUID, list[UUID]]) -> None:
    ends = {
        row["id"]: row
        for row in await store.fetch("select id, status, finished_at from finished_tasks")
    }
    runs = await store.fetch("select task_id, outcome, started_at from runs where type = 'join'")
    done = Counter(row["task_id"] for row in runs if row["outcome"] == "completed")
    for join, parents in joins.items():
        good = all(ends[one]["status"] == "completed" for one in parents)
        assert ends[join]["status"] == ("completed" if good else "failed")
        assert done[join] == (1 if good else 0)
    for row in runs:
        if row["started_at"] is not None:
            last = max(ends[one]["finished_at"] for one in joins[row["task_id"]])
            assert row["started_at"] >= last - CLOCKS
    assert await store.fetchval("select count(*) from task_waits") == 0
