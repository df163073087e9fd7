"""A codec in client and worker, on both clusters: only these two see what is in a task."""

from typing import Any

import msgspec
import pytest

import duly
from duly.contrib.aes_siv import AesSiv
from duly.testing import Cluster, MemoryCluster
from duly.testing.harness import Harness

PATIENCE_S = 120.0  # a busy machine may be slow
KEY = AesSiv.new_key()


class Email(msgspec.Struct):
    to: str


class Keys:
    """A codec that is given its key later."""

    accepts_plain = False

    def __init__(self) -> None:
        self.known: AesSiv | None = None

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        return (self.known or AesSiv({"k": KEY}, current="k")).encode(value)

    def decode(self, key: str, data: bytes, /) -> bytes:
        if self.known is None:
            raise duly.UnknownKey(key)
        return self.known.decode(key, data)


@pytest.fixture
def codec() -> AesSiv:
    return AesSiv({"k": KEY}, current="k")


@pytest.fixture(params=["memory", "servers"])
def harness(request: pytest.FixtureRequest, codec: AesSiv) -> Harness:
    if request.param == "memory":
        return MemoryCluster(patience_s=PATIENCE_S, codec=codec)
    servers = request.getfixturevalue("duly_servers")
    return Cluster(servers, patience_s=PATIENCE_S, codec=codec)


async def test_handlers_and_callers_see_values_and_the_cluster_does_not(
    harness: Harness, codec: AesSiv
) -> None:
    worker = duly.Worker("redis://nowhere:1/0", codec=codec)

    @worker.task("send")
    async def send(ctx: duly.Context, email: Email) -> dict[str, Any]:
        if email.to == "nobody":
            raise duly.Fail("no such person: nobody")
        return {"sent": email.to}

    @worker.task("length")
    def length(ctx: duly.Context, payload: int) -> int:
        return payload**2

    async with harness as cluster:
        await cluster.start(worker)
        client = cluster.client
        sent = await (await client.submit("send", {"to": "a@example.org"})).wait(60)
        assert (sent.payload, sent.result) == ({"to": "a@example.org"}, {"sent": "a@example.org"})
        failed = await (await client.submit("send", {"to": "nobody"})).wait(60)
        assert (failed.status, failed.error["type"]) == ("failed", "Fail")
        assert failed.error["message"] == "no such person: nobody"
        assert "nobody" in failed.error["traceback"]
        misfit = await (await client.submit("send", {"to": 5})).wait(60)
        assert misfit.error["type"] == "invalid_payload"
        assert "Expected `str`" in misfit.error["message"]
        (big,) = await client.submit_batch([{"type": "length", "payload": 2**70}])
        assert (await client.wait(big, 60)).result == 2**140
        (run,) = await client.runs(failed.id)
        assert run.error == failed.error
        assert {one.payload["to"] async for one in client.list(type="send")} == {
            "a@example.org", "nobody", 5,
        }  # fmt: skip
        client._codec = None  # as the cluster itself, and anybody without the key, sees it
        for task in (sent, failed, misfit):
            raw = await client.get(task.id)
            assert raw.payload.keys() == {"$encrypted"}
            assert "example" not in str(raw)
            assert "nobody" not in str(raw)
            if raw.error is not None:
                assert raw.error.keys() == {"type", "$encrypted"}


async def test_a_repeated_submission_is_the_same_task(harness: Harness) -> None:
    async with harness as cluster:
        submit = cluster.client.submit
        first = await submit("send", {"a": 1, "b": 2}, idempotency_key="once")
        again = await submit("send", {"b": 2, "a": 1}, idempotency_key="once")
        assert again.id == first.id
        with pytest.raises(duly.Conflict):
            await submit("send", {"a": 1, "b": 3}, idempotency_key="once")


async def test_a_task_whose_key_is_missing_waits_for_it(harness: Harness, codec: AesSiv) -> None:
    keys = Keys()
    worker = duly.Worker("redis://nowhere:1/0", codec=keys)
    bare = duly.Worker("redis://nowhere:1/0", queues=["bare"])

    @worker.task("send")
    @bare.task("send")
    async def send(ctx: duly.Context, email: Email) -> str:
        if not calls:
            calls.append(ctx.id)
            raise duly.Snooze(3600)
        return email.to

    calls: list[str] = []
    async with harness as cluster:
        await cluster.start(worker)
        await cluster.start(bare)
        task = await cluster.client.submit("send", {"to": "a"}, max_retries=0)
        lost = await cluster.client.submit("send", {"to": "a"}, max_retries=0, queue="bare")
        await cluster.settle()
        for each in (task, lost):
            waiting = await cluster.client.get(each.id)
            assert (waiting.status, waiting.retry_count) == ("pending", 0)
            assert waiting.error["type"] == "given_back"
            assert await cluster.client.runs(each.id) == []
        keys.known = codec
        await cluster.advance(seconds=6)
        waiting = await cluster.client.get(task.id)
        assert (waiting.status, waiting.error) == ("pending", None)  # by its handler's own wish
        await cluster.advance(hours=2)
        assert (await cluster.client.get(task.id)).result == "a"
        assert (await cluster.client.get(lost.id)).status == "pending"


async def test_a_result_is_measured_as_it_is_stored(harness: Harness, codec: AesSiv) -> None:
    worker = duly.Worker("redis://nowhere:1/0", codec=codec)

    @worker.task("text")
    async def text(ctx: duly.Context, length: int) -> str:
        return "x" * length

    async with harness as cluster:
        await cluster.start(worker)
        fits = await (await cluster.client.submit("text", 190_000)).wait(60)
        assert len(fits.result) == 190_000
        over = await (await cluster.client.submit("text", 200_000)).wait(60)
        assert (over.status, over.error["type"]) == ("failed", "result_too_large")
        assert "bytes, encrypted, more than" in over.error["message"]
        with pytest.raises(duly.TooLarge, match="payload"):
            await cluster.client.submit("text", "x" * 200_000)
