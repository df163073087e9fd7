"""Submit transfers, wait for them, and check the books: `python transfers.py DIR/urls.json`."""

import argparse
import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import bank

import duly

TYPE = "bank.transfer"


async def submit(api: str, count: int) -> None:
    """Submit transfers that are due in the next seconds."""
    async with duly.Client(api) as client:
        await client.submit_batch([random_transfer() for _ in range(count)])


def random_transfer() -> dict[str, object]:
    source, target = random.sample(range(1, bank.ACCOUNTS + 1), 2)
    return {
        "type": TYPE,
        "payload": {"source": source, "target": target, "amount": random.randint(1, 20)},
        "delay": random.uniform(0, 3),
        "max_retries": 20,
        "backoff": {"kind": "fixed", "delay": 0.5},
    }


async def ended(api: str) -> list[duly.Task]:
    """Wait until every transfer has ended; returns all of them."""
    async with duly.Client(api) as client:
        while True:
            try:
                tasks = [task async for task in client.list(type=TYPE)]
            except (duly.Unavailable, duly.Unreachable):
                tasks = []
            if tasks and all(task.finished_at for task in tasks):
                return tasks
            await asyncio.sleep(0.3)


async def check(tasks: list[duly.Task], database: str) -> list[str]:
    """Compare the books with the tasks; returns what is wrong."""
    async with bank.connect(database) as connection:
        lines = await connection.fetch("select * from transfers")
        balances = {row["id"]: row["balance"] for row in await connection.fetch("table accounts")}
    wrong = []
    if sum(balances.values()) != bank.ACCOUNTS * bank.OPENING:
        wrong.append(f"all accounts hold {sum(balances.values())}")

    times = Counter(str(line["task"]) for line in lines)
    by_task = {str(line["task"]): line for line in lines}
    for task in tasks:
        wanted = 1 if task.status == "completed" else 0
        if times[str(task.id)] != wanted:
            wrong.append(f"{task.id} is {task.status} and was applied {times[str(task.id)]} times")
        elif wanted and task.result != {"balance": by_task[str(task.id)]["balance_after"]}:
            wrong.append(f"{task.id} reported {task.result}")
    unknown = times.keys() - {str(task.id) for task in tasks}
    wrong += [f"{task_id} was applied and is not known" for task_id in unknown]

    expected = Counter(dict.fromkeys(balances, bank.OPENING))
    for line in lines:
        expected[line["source"]] -= line["amount"]
        expected[line["target"]] += line["amount"]
    wrong += [f"account {n} holds {b}" for n, b in balances.items() if b != expected[n]]
    if not wrong:
        done = sum(task.status == "completed" for task in tasks)
        print(f"{done} of {len(tasks)} transfers completed, each of these applied once")
        print(f"all accounts hold {sum(balances.values())}, as at the beginning")
    return wrong


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", type=Path, help="the urls.json that `duly up` wrote")
    parser.add_argument(
        "--count", type=int, default=200, help="how many transfers (200); 0: only check"
    )
    args = parser.parse_args()
    urls = json.loads(args.urls.read_text())
    await bank.create(urls["database"])
    if args.count:
        await submit(urls["api"], args.count)
        print(f"{args.count} transfers submitted", flush=True)
    wrong = await check(await ended(urls["api"]), urls["database"])
    for problem in wrong:
        print(problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
