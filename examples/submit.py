"""Submit a task from Python, twice under one key, and wait for its result."""

import asyncio
import os

import duly


async def main() -> None:
    async with duly.Client(os.environ.get("DULY_URL", "http://127.0.0.1:8080")) as client:
        grace = {"name": "Grace"}
        task = await client.submit("greet", grace, delay=1, idempotency_key="greet-grace")
        same = await client.submit("greet", grace, delay=1, idempotency_key="greet-grace")
        print("one task:", task.id == same.id)
        while task.finished_at is None:
            await asyncio.sleep(0.1)
            task = await client.get(task.id)
        print(task.status, task.result)


asyncio.run(main())
