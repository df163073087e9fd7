"""kill -9 of a worker that completes in its transactions: each effect once, and each task completed by it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import bank_program
import pytest
from node_rig import RunningNode, running_node
from processes import Child, Processes, line_of
from waiting import wait_for

pytestmark = pytest.mark.chaos

ORDERS = ["outcome_first", "effect_first"]


@pytest.fixture
async def bank(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    await connection.execute("create table payments (task uuid)")
    yield connection
    await connection.close()


@pytest.fixture
async def node(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    async with running_node(fresh_database, redis_url) as running:
        yield running


def started(processes: Processes, node: RunningNode, redis_url: str, *arguments: str) -> Child:
    database_url = node.settings.database_url
    assert database_url is not None
    return processes.python(Path(bank_program.__file__), database_url, redis_url, *arguments)


async def all_completed(node: RunningNode, bank: Any, count: int) -> None:
    """Wait until all tasks are; then each has one effect, and one run that completed."""

    async def look() -> bool:
        return bool(
            await bank.fetchval("select count(*) from finished_tasks where status = 'completed'")
            == count
        )

    await wait_for(look, 120, "all tasks are completed")
    assert await bank.fetchval("select count(*) from tasks") == 0
    paid = sorted(row["task"] for row in await bank.fetch("select task from payments"))
    done = sorted(row["id"] for row in await bank.fetch("select id from finished_tasks"))
    assert paid == done
    runs = await bank.fetch("select task_id from runs where outcome = 'completed'")
    assert sorted(row["task_id"] for row in runs) == done
    assert await bank.fetchval("select count(*) from runs where result ->> 'by' is null") == (
        await bank.fetchval("select count(*) from runs where outcome <> 'completed'")
    )


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_before_the_commit_nothing_has_happened_and_another_attempt_does_it(
    processes: Processes, node: RunningNode, redis_url: str, bank: Any, order: str
) -> None:
    await node.client.submit("pay", backoff={"delay": 0})
    killed = started(processes, node, redis_url, order, "open")
    await line_of(killed, "^open ")
    killed.kill9()
    assert await bank.fetchval("select count(*) from payments") == 0
    started(processes, node, redis_url, order)
    await all_completed(node, bank, 1)


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_after_the_commit_it_has_completed_and_is_not_run_again(
    processes: Processes, node: RunningNode, redis_url: str, bank: Any, order: str
) -> None:
    await node.client.submit("pay", backoff={"delay": 0})
    killed = started(processes, node, redis_url, order, "committed")
    await line_of(killed, "^committed ")
    killed.kill9()
    other = started(processes, node, redis_url, order)
    await line_of(other, "^ready")
    await all_completed(node, bank, 1)
    assert "committed" not in other.output


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_anywhere_each_task_has_its_effect_once(
    processes: Processes, node: RunningNode, redis_url: str, bank: Any, order: str
) -> None:
    count = 60
    await node.client.submit_batch([{"type": "pay", "backoff": {"delay": 0}}] * count)
    for commits in (1, 5, 13):
        program = started(processes, node, redis_url, order)
        await line_of(program, rf"(?:^committed \S+\n){{{commits}}}")
        program.kill9()
    started(processes, node, redis_url, order)
    await all_completed(node, bank, count)
