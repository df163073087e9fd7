"""The part of the nodes, played by hand: what a rule does to a worker, and what it sees of it.

The bench publishes as a dispatcher does and reads reports as a recorder does: it takes the token of a
recorded attempt out of the in-flight hash. Task entries it leaves where they are: to take them out is
the worker's part.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from duly.nodes.conformance.attempts import ECHO, Attempt, dispatch
from duly.nodes.conformance.process import WorkerProcess
from duly.nodes.conformance.proxy import Proxy
from duly.nodes.conformance.reports import Report, Reports
from duly.nodes.conformance.rule import Broken
from duly.nodes.conformance.signs import Sign, living
from duly.nodes.conformance.starts import Starts
from duly.storage import keys
from duly.storage.redis import call, connect, text
from duly.storage.stream_facts import pairs

COMMAND_S: Final = 10.0
"""Longest wait for one answer of Redis."""

POLL_S: Final = 0.02
"""How often the bench looks."""

_PENDING_MAX: Final = 10_000

T = TypeVar("T")


class Bench:
    """One queue, and the one worker that is tried on it."""

    def __init__(
        self,
        url: str,
        queue: str,
        starts: Starts,
        wait_s: float,
        *,
        proxy: Proxy | None = None,
        process: WorkerProcess | None = None,
    ) -> None:
        """`wait_s`: a worker that has not done something after so long does not do it."""
        self.queue = queue
        self.starts = starts
        self.proxy = proxy
        self.process = process
        self.wait_s = wait_s
        self.tasks = keys.tasks(queue)
        self.inflight = keys.inflight(queue)
        self.reports = Reports(self.call, queue)
        self._redis: Redis = connect(url, name="duly-conformance")

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def call(self, *words: Any) -> Any:
        """Any command."""
        return await call(self._redis, *words, timeout_s=COMMAND_S)

    async def together(self, *commands: Sequence[Any]) -> list[Any]:
        """Several commands in one transaction."""
        pipe = self._redis.pipeline(transaction=True)
        for words in commands:
            pipe.execute_command(*words)
        async with asyncio.timeout(COMMAND_S):
            answers: list[Any] = await pipe.execute()
        return answers

    # Publishing

    async def publish(
        self,
        task_type: str,
        payload: object = None,
        *,
        task_id: str | None = None,
        token: int = 7,
        **more: str,
    ) -> Attempt:
        """Dispatch one attempt. `payload`: bytes as they are, else its JSON."""
        attempt, commands = dispatch(
            self.queue, task_type, payload, task_id=task_id, token=token, **more
        )
        answers = await self.together(*commands)
        return attempt._replace(entry_id=answers[-1])

    async def publish_all(self, *planned: tuple[Attempt, list[list[Any]]]) -> list[Attempt]:
        """Dispatch several attempts at the same instant."""
        answers = await self.together(*(words for _, commands in planned for words in commands))
        entries = [answer for answer in answers if isinstance(answer, bytes)]
        return [
            attempt._replace(entry_id=entry)
            for (attempt, _), entry in zip(planned, entries, strict=True)
        ]

    async def supersede(self, attempt: Attempt) -> None:
        """Put a higher token in the attempt's place, as a node does when the task is cancelled."""
        await self.call("HSET", self.inflight, attempt.id, attempt.token + 1)

    async def tell(self, worker_id: str, message: str) -> int:
        """Send to the worker's control channel; answers how many listened."""
        return int(await self.call("PUBLISH", keys.control(worker_id), message))

    # Looking

    async def wait(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """The first true value of `look`; Broken, with `what`, if there is none in time."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.wait_s
        while True:
            found = await look()
            if found:
                return found
            if self.process is not None and not self.process.runs and not self.process.stopping:
                raise Broken(f"the worker ended with code {self.process.exit_code}")
            if loop.time() > give_up_at:
                raise Broken(f"{what}: not within {self.wait_s:g} s")
            await asyncio.sleep(POLL_S)

    async def worker(self) -> Sign:
        """The worker that is alive and takes tasks of this queue."""

        async def look() -> Sign | None:
            signs = await self.signs()
            return signs[0] if signs else None

        return await self.wait(look, f"a worker of queue {self.queue} shows that it lives")

    async def signs(self) -> list[Sign]:
        """Every worker alive that takes tasks of this queue, or says nothing that can be read."""
        return await living(self.call, self.queue)

    async def consumers(self) -> list[str]:
        """Who has read from the tasks stream."""
        try:
            rows = await self.call("XINFO CONSUMERS", self.tasks, keys.WORKERS_GROUP)
        except ResponseError:
            return []
        return [text(pairs(row)["name"]) for row in rows]

    async def has_group(self) -> bool:
        """Whether the tasks stream has its consumer group."""
        try:
            await self.call("XINFO CONSUMERS", self.tasks, keys.WORKERS_GROUP)
        except ResponseError:
            return False
        return True

    async def pending(self) -> list[bytes]:
        """Entries that are delivered and not given back."""
        try:
            rows = await self.call(
                "XPENDING", self.tasks, keys.WORKERS_GROUP, "-", "+", _PENDING_MAX
            )
        except ResponseError:
            return []
        return [row[0] for row in rows]

    async def taken(self, attempt: Attempt) -> None:
        """Wait until a worker has fetched it."""

        async def look() -> bool:
            return attempt.entry_id in await self.pending()

        await self.wait(look, "the task is fetched")

    async def in_stream(self, attempt: Attempt) -> bool:
        """Whether its entry is still there, or not given back."""
        found = await self.call("XRANGE", self.tasks, attempt.entry_id, attempt.entry_id)
        return bool(found) or attempt.entry_id in await self.pending()

    async def given_back(self, attempt: Attempt) -> None:
        """Wait until its entry is acknowledged and deleted."""

        async def look() -> bool:
            return not await self.in_stream(attempt)

        await self.wait(look, "the task's entry is acknowledged and deleted (XACK, XDEL)")

    # Reports

    async def report(self, attempt: Attempt, outcome: str | None = None) -> Report:
        """Wait for the first report; Broken if it has another outcome than this."""

        async def look() -> Report | None:
            found = self.reports.of(attempt)
            return found[0] if found else None

        report = await self.wait(look, f"a report with id {attempt.id} and token {attempt.token}")
        if outcome is not None and report["outcome"] != outcome:
            said = f": {report['error'][:200]}" if report["error"] else ""
            raise Broken(f"the outcome is {report['outcome']!r}, not {outcome!r}{said}")
        return report

    async def done(self, attempt: Attempt, outcome: str = "completed") -> Report:
        """Wait for the report with this outcome, and for the entry to be given back."""
        report = await self.report(attempt, outcome)
        await self.given_back(attempt)
        return report

    async def all_reports(self, attempt: Attempt) -> list[Report]:
        """All reports about this attempt that are there by now."""
        await self.wait(self.reports.all_read, "the reports that are there have been read")
        return self.reports.of(attempt)

    async def echo(self) -> None:
        """One task, from end to end: the worker is there and works."""
        await self.done(await self.publish(ECHO, "still there"))

    async def unreported(self, *attempts: Attempt) -> None:
        """Wait until these are given back; Broken if there is a report about one.

        A task after them is completed before the look, so that what was begun would have ended.
        """
        for attempt in attempts:
            await self.given_back(attempt)
        await self.echo()
        for attempt in attempts:
            if found := self.reports.of(attempt):
                raise Broken(f"it was reported, as {found[0]['outcome']!r}, instead of dropped")

    # The worker's process

    async def start_worker(self) -> Sign:
        """Start the worker and wait until it lives."""
        assert self.process is not None
        await self.process.start()
        return await self.worker()

    async def ended(self) -> int:
        """Wait for the end of a worker that was told to stop; answers its exit code."""

        async def look() -> bool:
            return self.process is not None and not self.process.runs

        await self.wait(look, "the worker ends after SIGTERM")
        assert self.process is not None
        assert self.process.exit_code is not None
        return self.process.exit_code

    async def listening(self) -> Sign:
        """The worker, once it listens on its control channel."""
        sign = await self.worker()

        async def look() -> bool:
            answer = await self.call("PUBSUB", "NUMSUB", keys.control(sign.id))
            return int(answer[1]) > 0

        await self.wait(look, f"the worker subscribes to {keys.control(sign.id)}")
        return sign

    # Between two rules

    async def clear(self) -> None:
        """Tell the worker to stop what it runs, and take away all that is left of earlier tasks."""
        for worker in await self.signs():
            for task_id, token in dict(await self._inflight()).items():
                message = json.dumps({"cancel": task_id, "token": int(token)})
                await self.tell(worker.id, message)
        left = await self.pending()
        commands: list[list[Any]] = [["DEL", self.inflight], ["XTRIM", self.tasks, "MAXLEN", 0]]
        commands += [["XTRIM", keys.reports(self.queue), "MAXLEN", 0]]
        if left:
            commands.append(["XACK", self.tasks, keys.WORKERS_GROUP, *left])
        await self.together(*commands)

    async def _inflight(self) -> list[tuple[str, str]]:
        words = await self.call("HGETALL", self.inflight)
        found = (
            words.items() if isinstance(words, dict) else zip(words[::2], words[1::2], strict=True)
        )
        return [(text(key), text(value)) for key, value in found]

    async def forget(self) -> None:
        """Remove the queue's keys."""
        await self.call(
            "DEL", self.tasks, self.inflight, keys.reports(self.queue), keys.entries(self.queue)
        )
