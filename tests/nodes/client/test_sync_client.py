"""`duly.SyncClient`: the same calls without an event loop."""

import inspect
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import uuid4

import anyio.to_thread
import pytest
from fake_api import FakeApi, refuse
from worker_rig import until

import duly

T = TypeVar("T")


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[duly.SyncClient]:
    made = duly.SyncClient(api.url)
    yield made
    await blocking(made.close)


async def blocking(call: Callable[[], T]) -> T:
    """Run a blocking call while the fake API goes on in this loop."""
    return await anyio.to_thread.run_sync(call)


async def test_every_call_works(api: FakeApi, client: duly.SyncClient) -> None:
    def use() -> None:
        task = client.submit("t", {"n": 1}, delay=5)
        assert client.get(task.id).payload == {"n": 1}
        assert client.update(task.id, if_match=1, priority=7).priority == 7
        assert client.cancel(task.id).status == "cancelled"
        assert client.retry(task.id).status == "pending"
        assert client.pause(task.id).paused
        assert not client.resume(task.id).paused
        assert client.run_now(task.id).id == task.id
        assert len(client.submit_batch([{"type": "t"}] * 150)) == 150
        assert len(client.submit_many({"type": "t"} for _ in range(3))) == 3
        assert len(list(client.list())) == 154
        client.cancel(task.id)
        assert client.wait(task.id, timeout_s=30).status == "cancelled"
        assert next(client.list(type="t", limit=1)).type == "t"
        assert [run.attempt for run in client.runs(task.id, limit=2)] == [250, 249]
        assert client.explain(task.id).reasons[0]["code"] == "not_due"
        assert [node.id for node in client.nodes()] == ["old", "new"]
        assert [worker.id for worker in client.workers()] == ["other", "sdk"]
        assert client.update_queue("q", paused=True, rate=2.5).rate == 2.5
        assert client.queue("q").paused
        assert [one.queue for one in client.queues()] == ["q"]
        assert client.bulk.preview("cancel", {"queue": "q"}).count == 12_345
        job = client.bulk.begin("pause", {"queue": "q"}, rate=5)
        assert client.bulk.job(job.id).done == 1
        assert client.bulk.stop(job.id).status == "stopping"
        assert [one.id for one in client.bulk.jobs(limit=2)] == [job.id]
        assert [one.verdict for one in client.ledger(task.id, limit=2)] == [None, "skipped"]
        assert next(client.verdicts(verdict="rejected", limit=1)).outcome == "failed"
        with pytest.raises(duly.NotFound):
            client.get(uuid4())
        with pytest.raises(TypeError, match="unknown option"):
            client.submit("t", colour="red")  # type: ignore[call-arg]  # the point of the test

    await blocking(use)


async def test_threads_may_share_a_client(api: FakeApi, client: duly.SyncClient) -> None:
    def use() -> None:
        with ThreadPoolExecutor(8) as pool:
            tasks = list(pool.map(lambda n: client.submit("t", n), range(100)))
        assert [task.payload for task in tasks] == list(range(100))

    await blocking(use)


async def test_it_ends_with_its_block_and_says_so(api: FakeApi) -> None:
    def use() -> None:
        before = threading.active_count()
        with duly.SyncClient(api.url) as client:
            client.submit("t")
        client.close()
        assert threading.active_count() == before
        with pytest.raises(RuntimeError, match="closed"):
            client.submit("t")

    await blocking(use)


async def test_closing_ends_a_call_that_another_thread_waits_for(api: FakeApi) -> None:
    api.before = [refuse(503, Retry_After="20")]
    client = duly.SyncClient(api.url)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.submit, "t")
        await until(lambda: len(api.requests) == 1)
        await blocking(client.close)
        error = await blocking(call.exception)
    assert error is not None


async def test_a_forked_child_is_told_to_make_its_own(
    client: duly.SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> None:
        with monkeypatch.context() as child:
            child.setattr("duly.nodes.client.loop_thread.os.getpid", lambda: 1)
            with pytest.raises(RuntimeError, match="fork"):
                client.submit("t")
            client.close()  # does not touch what belongs to the parent
        client.submit("t")

    await blocking(use)


def test_it_has_the_methods_of_the_async_client() -> None:
    def shape(owner: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(owner, inspect.isfunction)
            if not name.startswith("_")
        }

    assert shape(duly.SyncClient) == shape(duly.Client)
