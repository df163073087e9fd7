"""A fake node and helpers, to test workers without one: it dispatches and reads the reports."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from waiting import wait_for

from duly.nodes.worker import Worker
from duly.storage import keys

WAIT_S = 60.0
"""Longest wait for anything in these tests."""

_STOP_S = 25.0  # less than a worker gives its handlers by default


async def until(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str = "the condition"
) -> None:
    """Wait until `holds()`; fail after `WAIT_S`."""
    await wait_for(cast("Callable[[], Awaitable[bool]]", holds), WAIT_S, what, poll_s=0.005)


class Report:
    """One entry of the reports stream."""

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self.fields = {name.decode(): value.decode() for name, value in fields.items()}

    def __getattr__(self, name: str) -> str:
        return self.fields[name]

    @property
    def value(self) -> Any:
        """The result or the error."""
        return json.loads(self.fields.get("result") or self.fields["error"])


class FakeNode:
    """Publishes as a dispatcher does and reads as a recorder does."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Tests restart the server: connect again instead of failing.
        again = Retry(ConstantBackoff(0.05), 20)
        self.redis: Redis = Redis.from_url(url, protocol=2, retry=again)

    async def dispatch(
        self,
        task_type: str,
        payload: str | bytes = "null",
        *,
        queue: str = "default",
        task_id: str | None = None,
        token: int = 1,
        inflight: int | None = 0,
        **fields: str,
    ) -> str:
        """Publish one attempt; `inflight`: 0 the same token, None no entry, else that token."""
        task_id = task_id or str(uuid.uuid4())
        if inflight is not None:
            value = str(inflight or token)
            await self.call("HSET", keys.inflight(queue), task_id, value)
        entry = {
            "id": task_id,
            "token": str(token),
            "type": task_type,
            "payload": payload,
            "due": "1790000000000",
            "attempt": "1",
            "timeout": "300",
            "queue": queue,
            **fields,
        }
        words = [word for item in entry.items() for word in item]
        await self.call("XADD", keys.tasks(queue), "*", *words)
        return task_id

    async def call(self, *words: Any) -> Any:
        """Send any command."""
        return await cast(Any, self.redis).execute_command(*words)

    async def reports(self, queue: str = "default") -> list[Report]:
        """Return all reports so far, oldest first."""
        found = await cast(Any, self.redis).xrange(keys.reports(queue))
        return [Report(fields) for _, fields in found]

    async def wait_reports(self, count: int, queue: str = "default") -> list[Report]:
        """Wait for at least `count` reports."""

        async def enough() -> bool:
            return int(await self.call("XLEN", keys.reports(queue))) >= count

        await until(enough, f"{count} reports")
        return await self.reports(queue)

    async def left(self, queue: str = "default") -> int:
        """Return how many entries the tasks stream holds."""
        return int(await self.call("XLEN", keys.tasks(queue)))

    async def pending(self, queue: str = "default") -> int:
        """Return how many entries are delivered and not given back."""
        summary = await self.call("XPENDING", keys.tasks(queue), keys.WORKERS_GROUP)
        return int(summary["pending"] if isinstance(summary, dict) else summary[0])

    async def empty(self, queue: str = "default") -> None:
        """Wait until nothing is left in the stream and nothing is pending."""

        async def done() -> bool:
            return not await self.left(queue) and not await self.pending(queue)

        await until(done, "an empty stream")

    async def reading(self, worker_id: str = "w1") -> bool:
        """Say whether that worker waits in a blocked read."""
        clients = await cast(Any, self.redis).client_list()
        name = f"duly-worker-{worker_id}-read"
        return any(c["name"] == name and "b" in c["flags"] for c in clients)

    async def listening(self, worker_id: str = "w1") -> bool:
        """Say whether that worker hears its control channel."""
        return bool((await self.call("PUBSUB", "NUMSUB", keys.control(worker_id)))[1])

    async def alive(self, worker_id: str = "w1") -> bool:
        """Say whether that worker's liveness key is there."""
        return bool(await self.call("EXISTS", keys.worker(worker_id)))

    async def close(self) -> None:
        """Close the connection."""
        await self.redis.aclose()


@asynccontextmanager
async def running(
    worker: Worker, *, expect: Sequence[type[BaseException]] = ()
) -> AsyncIterator[asyncio.Task[None]]:
    """Run `worker` for the length of the block, then stop it and wait for its end."""
    life = asyncio.create_task(worker.serve())
    try:
        yield life
    finally:
        worker.stop()
        try:
            await asyncio.wait_for(life, _STOP_S)
        except tuple(expect):
            pass
