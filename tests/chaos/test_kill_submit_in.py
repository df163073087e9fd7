"""kill -9 of a program that submits in its transactions: never an order without its task, or the reverse."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import shop_program
from node_rig import running_node
from processes import Child, Processes, line_of
from waiting import wait_for
from worker_rig import running

import duly

pytestmark = pytest.mark.chaos

ORDERS = ["task_first", "order_first"]


@pytest.fixture
async def shop(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    await connection.execute("create table orders (number uuid, task uuid)")
    yield connection
    await connection.close()


def started(processes: Processes, url: str, *arguments: str) -> Child:
    return processes.python(Path(shop_program.__file__), url, *arguments)


async def sessions_end(shop: Any) -> None:
    """Wait until PostgreSQL has noticed that the program is gone."""

    async def look() -> bool:
        others = await shop.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        return bool(others == 0)

    await wait_for(look, 60, "the sessions have ended")


async def orders_and_tasks(shop: Any) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    orders = await shop.fetch("select number::text, task from orders")
    tasks = await shop.fetch("select payload ->> 'order', id from tasks")
    return {tuple(row) for row in orders}, {tuple(row) for row in tasks}


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_before_the_commit_there_is_neither(
    processes: Processes, fresh_database: str, shop: Any, order: str
) -> None:
    program = started(processes, fresh_database, order, "open")
    await line_of(program, "^open ")
    program.kill9()
    await sessions_end(shop)
    assert await orders_and_tasks(shop) == (set(), set())


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_after_the_commit_there_are_both(
    processes: Processes, fresh_database: str, shop: Any, order: str
) -> None:
    program = started(processes, fresh_database, order, "committed")
    number = (await line_of(program, r"^committed (\S+)$"))[1]
    program.kill9()
    orders, tasks = await orders_and_tasks(shop)
    assert orders == tasks
    assert {row[0] for row in orders} == {number}


@pytest.mark.parametrize("order", ORDERS)
async def test_killed_anywhere_each_order_has_its_task_and_it_is_run_once(
    processes: Processes, fresh_database: str, redis_url: str, shop: Any, order: str
) -> None:
    said: list[str] = []
    for count in (1, 7, 20, 33, 50):
        program = started(processes, fresh_database, order)
        await line_of(program, rf"(?:^committed \S+\n){{{count}}}")
        program.kill9()
        said += re.findall(r"^committed (\S+)\n", program.output, re.MULTILINE)  # whole lines
    await sessions_end(shop)
    orders, tasks = await orders_and_tasks(shop)
    assert orders == tasks
    assert {number for number, _ in orders}.issuperset(said)

    shipped: list[str] = []
    worker = duly.Worker(redis_url)

    @worker.task("order.ship")
    async def ship(ctx: duly.Context, payload: dict[str, str]) -> None:
        shipped.append(payload["order"])

    async with running_node(fresh_database, redis_url), running(worker):
        await wait_for(lambda: len(shipped) >= len(orders), 120, "all is shipped")
    assert sorted(shipped) == sorted(number for number, _ in orders)
