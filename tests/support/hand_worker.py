"""A worker in another language, so to speak: the protocol of section 7 of the design by hand."""

from typing import Any, NamedTuple, Self

import anyio
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from waiting import wait_for

from duly.storage import keys
from duly.storage.redis import call, connect

_LIMIT_S = 30.0
_LONG_MS = 600_000  # longer than any test takes


class Taken(NamedTuple):
    """An entry that was read; `fields` as text."""

    entry_id: bytes
    fields: dict[str, str]

    @property
    def id(self) -> str:
        """Of the task."""
        return self.fields["id"]


class HandWorker:
    """Does nothing by itself: the test says when it lives, reads and reports."""

    def __init__(self, url: str, name: str = "hand", queue: str = "default") -> None:
        self.name = name
        self._queue = queue
        self._redis: Redis = connect(url, name=f"test-{name}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def call(self, *words: Any) -> Any:
        """Any command."""
        return await call(self._redis, *words, timeout_s=_LIMIT_S)

    async def live(self, ttl_ms: int = _LONG_MS) -> None:
        """Renew the liveness key; with the default it lives until it dies."""
        await self.call("SET", keys.worker(self.name), '{"concurrency":10}', "PX", ttl_ms)

    async def beat(self, every_s: float, ttl_ms: int) -> None:
        """Live until cancelled."""
        while True:
            await self.live(ttl_ms)
            await anyio.sleep(every_s)

    async def die(self) -> None:
        """Withdraw the liveness key, and keep what was taken."""
        await self.call("DEL", keys.worker(self.name))

    async def read(self, count: int = 10) -> list[Taken]:
        """What is there now."""
        try:
            answer = await self.call(
                "XREADGROUP", "GROUP", keys.WORKERS_GROUP, self.name, "COUNT", count,
                "STREAMS", keys.tasks(self._queue), ">",
            )  # fmt: skip
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):
                return []
            raise
        return [Taken(entry, _text(words)) for entry, words in (answer[0][1] if answer else [])]

    async def pending(self) -> int:
        """Count what is delivered and not given back; 0 while nothing was ever published."""
        try:
            summary = await self.call("XPENDING", keys.tasks(self._queue), keys.WORKERS_GROUP)
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):
                return 0
            raise
        return int(summary[0])

    async def join(self) -> None:
        """Become a consumer; before Redis 7.2 a read that brings nothing does not do it."""
        words = ("XGROUP", "CREATECONSUMER", keys.tasks(self._queue), keys.WORKERS_GROUP, self.name)
        await self.call(*words)

    async def live_and_join(self) -> None:
        """Live, and be a consumer before anything was published."""
        await self.live()
        try:
            await self.call(
                "XGROUP", "CREATE", keys.tasks(self._queue), keys.WORKERS_GROUP, "0", "MKSTREAM"
            )
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        await self.join()

    async def take(self, timeout_s: float = 60.0) -> Taken:
        """Wait for one entry."""

        async def one() -> Taken | None:
            found = await self.read(1)
            return found[0] if found else None

        return await wait_for(one, timeout_s, "an entry in the stream")

    async def may_begin(self, taken: Taken) -> bool:
        """Whether its token is still the one in flight."""
        known = await self.call("HGET", keys.inflight(self._queue), taken.id)
        return bool(known == taken.fields["token"].encode())

    async def report(self, taken: Taken, outcome: str = "completed", **fields: Any) -> None:
        """Report, and give the entry back."""
        said = {"id": taken.id, "token": taken.fields["token"], "outcome": outcome, **fields}
        words = [word for item in said.items() for word in item]
        pipe = self._redis.pipeline(transaction=True)
        pipe.execute_command("XADD", keys.reports(self._queue), "*", *words)
        pipe.execute_command("XACK", keys.tasks(self._queue), keys.WORKERS_GROUP, taken.entry_id)
        pipe.execute_command("XDEL", keys.tasks(self._queue), taken.entry_id)
        await pipe.execute()

    async def sizes(self) -> list[int]:
        """Entries of tasks, reports, in-flight hash, entries hash."""
        return [
            await self.call("XLEN", keys.tasks(self._queue)),
            await self.call("XLEN", keys.reports(self._queue)),
            await self.call("HLEN", keys.inflight(self._queue)),
            await self.call("HLEN", keys.entries(self._queue)),
        ]

    async def nothing_left(self) -> None:
        """Wait until nothing is kept of any task."""

        async def empty() -> bool:
            return await self.sizes() == [0, 0, 0, 0]

        await wait_for(empty, 60, "nothing is left in Redis")


def _text(words: list[bytes]) -> dict[str, str]:
    decoded = [word.decode(errors="replace") for word in words]
    return dict(zip(decoded[::2], decoded[1::2], strict=True))
