"""The example workers in every language, side by side on a real node, each with a queue of its own."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import pytest
from conformance_runs import WORKERS
from node_rig import RunningNode, running_node
from processes import Processes
from waiting import wait_for

from duly.nodes.client import Task

T = TypeVar("T")

LIMIT_S = 120.0
AT_ONCE = {"kind": "fixed", "delay": 0}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """The test's worker processes."""
    made = Processes(tmp_path)
    yield made
    made.close()


class Crew:
    """The workers in one language, one after the other, and the tasks of their queue."""

    def __init__(
        self, node: RunningNode, redis_url: str, processes: Processes, language: str
    ) -> None:
        self.language = language
        self.client = node.client
        self._node = node
        self._processes = processes
        self._env = {"DULY_REDIS_URL": redis_url, "DULY_QUEUE": language, "DULY_URL": node.url}
        self.start()

    def start(self) -> None:
        """Start a worker."""
        self.worker = self._processes.spawn(WORKERS[self.language], self._env)

    async def submit(self, name: str, payload: object = None, **options: Any) -> Task:
        """A task for these workers."""
        return await self.client.submit(name, payload, queue=self.language, **options)

    async def over(self, task: Task) -> Task:
        """The task, once it has ended."""

        async def look() -> Task | None:
            found = await self.client.get(task.id)
            return found if found.finished_at else None

        return await self._wait(look, f"task {task.type} ends")

    async def held(self, task: Task) -> None:
        """Wait until a worker has fetched the task."""

        async def look() -> bool:
            token = (await self.client.get(task.id)).version
            places = await self._node.context.streams.locate(self.language, [(task.id, token)])
            return bool(places[0].consumer)

        await self._wait(look, f"task {task.type} is fetched")

    async def given_back(self, task: Task) -> Task:
        """The task, once it waits again after an attempt."""

        async def look() -> Task | None:
            found = await self.client.get(task.id)
            return found if found.status == "pending" and found.version > 0 else None

        return await self._wait(look, f"task {task.type} is given back")

    async def started(self, task: Task) -> None:
        """Wait until a worker has been granted the start of the task, which has `on_lost="fail"`."""

        async def look() -> bool:
            return (await self.client.get(task.id)).started_at is not None

        await self._wait(look, f"task {task.type} is started")

    async def shown(self) -> None:
        """Wait until the worker is shown; those of a queue without a task never are."""
        await self._wait(self._shown, "the worker is shown")

    async def gone(self) -> None:
        """Wait until the worker is not shown any more."""

        async def look() -> bool:
            return not await self._shown()

        await self._wait(look, "the worker is not shown any more")

    async def _shown(self) -> list[Any]:
        """What the API shows of the worker that was started last."""
        items = (await self._node.call("GET", "/v1/workers")).body["items"]
        return [one for one in items if one["pid"] == self.worker.pid]

    async def _wait(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        try:
            return await wait_for(look, LIMIT_S, f"{self.language}: {what}")
        except AssertionError as error:
            error.add_note(self.worker.output[-3000:])
            raise


async def outcomes(crew: Crew) -> None:
    """Results, failures, retries and time limits reach the task."""
    sent = {"text": "ä € 😀 \"x\" 'y' \\ \n", "list": [1, 2.5, None]}
    echo = await crew.submit("conformance.echo", sent)
    sure = await crew.submit("conformance.echo", "once", on_lost="fail")
    mail = await crew.submit("email.send", {"to": "a@example.org"})
    wrong = await crew.submit("conformance.fail", "it cannot be", max_retries=0)
    again = await crew.submit("conformance.fail", "nor this", max_retries=1, backoff=AT_ONCE)
    slow = await crew.submit("conformance.sleep", {"seconds": 600}, timeout=1, max_retries=0)
    assert (await crew.over(echo)).result == sent
    assert (await crew.over(sure)).result == "once"
    mailed = (await crew.over(mail)).result  # some tell their fencing token, too
    assert mailed["sent_to"] == "a@example.org"
    failed = await crew.over(wrong)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "it cannot be" in failed.error["message"]
    assert (await crew.over(again)).retry_count == 1
    late = await crew.over(slow)
    assert late.error is not None
    assert late.error["type"] == "timed_out"


async def cancels(crew: Crew) -> None:
    """A cancel frees the worker: else the task that follows would wait for ten minutes."""
    stuck = [await crew.submit("conformance.sleep", {"seconds": 600}) for _ in range(4)]
    await crew.held(stuck[0])
    for task in stuck:
        await crew.client.cancel(task.id)
    assert (await crew.over(await crew.submit("conformance.echo", 1))).status == "completed"
    assert {(await crew.over(task)).status for task in stuck} == {"cancelled"}


async def unknown_types(crew: Crew) -> None:
    """A type that nobody knows is not failed: it waits for a worker that knows it."""
    strange = await crew.submit("conformance.no-handler")
    assert (await crew.given_back(strange)).retry_count == 0
    await crew.client.cancel(strange.id)


async def a_kill(crew: Crew) -> None:
    """Of a worker that is killed the next one gets the attempt that follows."""
    lost = await crew.submit("conformance.sleep", {"seconds": 5}, backoff=AT_ONCE)
    await crew.held(lost)
    crew.worker.signal_group(signal.SIGKILL)
    crew.start()
    ended = await crew.over(lost)
    assert (ended.status, ended.retry_count) == ("completed", 1)


async def a_stop(crew: Crew) -> None:
    """Told to leave, it ends first what runs, and nothing of it is left."""
    last = await crew.submit("conformance.sleep", {"seconds": 5}, on_lost="fail")
    await crew.started(last)
    await crew.shown()
    assert await anyio.to_thread.run_sync(crew.worker.stop, LIMIT_S) == 0
    ended = await crew.over(last)
    assert (ended.status, ended.retry_count) == ("completed", 0)
    await crew.gone()


async def test_workers_in_every_language(
    fresh_database: str, redis_url: str, processes: Processes
) -> None:
    async with running_node(fresh_database, redis_url) as node:

        async def career(language: str) -> None:
            crew = Crew(node, redis_url, processes, language)
            for part in (outcomes, cancels, unknown_types, a_kill, a_stop):
                await part(crew)

        async with asyncio.TaskGroup() as all_languages:
            for language in WORKERS:
                all_languages.create_task(career(language), name=language)
