"""C31: a call that is cut short never makes a later call read its answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from slow_proxy import slow_proxy
from store_rig import NOW

from duly.storage.redis import Scripts, call, connect, text
from duly.storage.streams import Streams

_HOUR_MS = 3_600_000  # longer than the test takes: the server is new all the time


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Redis]:
    client = connect(url, name="test")
    try:
        yield client
    finally:
        await client.aclose()


async def right_answers(client: Redis, scripts: Scripts, n: int) -> None:
    """Each kind of call, each with an answer that no other has."""

    async def get() -> None:
        await call(client, "SET", f"k{n}", f"v{n}", timeout_s=5)
        assert await call(client, "GET", f"k{n}", timeout_s=5) == f"v{n}".encode()

    async def count() -> None:
        before = await call(client, "INCR", f"count{n}", timeout_s=5)
        assert before == 1

    async def lease() -> None:
        names = ["since", f"lease{n}", f"nobody{n}"]
        answer = await scripts.run("lease_hold", names, ["me", _HOUR_MS, "early", "renew"])
        assert answer == [2, 0]

    await asyncio.gather(get(), count(), lease())


async def test_c31_cancelled_calls_leave_no_answer_behind(redis_url: str) -> None:
    async with slow_proxy(redis_url, 0.003) as url, opened(url) as client:
        scripts = Scripts(client, 5.0)
        streams = Streams(url, "node-a", 5.0)
        await streams.queues.announce("q")
        for n in range(300):
            calls = [
                asyncio.create_task(scripts.run("lease_release", ["a", "b"], ["me"])),
                asyncio.create_task(call(client, "INCR", "other", timeout_s=5)),
                asyncio.create_task(streams.reports.read(["q"], block_ms=20)),
            ]
            await asyncio.sleep(n % 8 * 0.0007)
            for one in calls:
                one.cancel()
            await asyncio.wait(calls)
            if n % 6 == 0:
                await right_answers(client, scripts, n)
                assert await streams.reports.read(["q"], block_ms=1) == []
                assert await streams.queues.names() == {"q"}
        await streams.close()


async def test_c31_a_call_that_is_too_slow_closes_its_connection(redis_url: str) -> None:
    async with slow_proxy(redis_url, 0.05) as url, opened(url) as client:
        await call(client, "SET", "secret", NOW.isoformat(), timeout_s=5)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await call(client, "GET", "secret", timeout_s=0.02)
            assert await call(client, "GET", "nothing", timeout_s=5) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "unable to perform operation on <TCPTransport closed=True>; the handler is closed",
            OSError,
        ),
        ("this is a mistake of ours", RuntimeError),
    ],
)
async def test_a_write_to_a_connection_that_was_just_reset_is_trouble(
    text: str, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("redis://127.0.0.1:1/0") as client:

        async def as_uvloop_does(*_: object) -> None:
            raise RuntimeError(text)

        monkeypatch.setattr(client, "execute_command", as_uvloop_does)
        with pytest.raises(expected):
            await call(client, "PING", timeout_s=5)


async def test_names_that_are_no_text_and_commands_of_two_words_arrive_as_they_are(
    redis_url: str,
) -> None:
    async with opened(redis_url) as client:
        name = text(b"no \xff text")
        assert await call(client, "SET", name, 1.5, timeout_s=5)
        assert await call(client, "GET", name, timeout_s=5) == b"1.5"
        assert await call(client, "GET", b"no \xff text", timeout_s=5) == b"1.5"
        assert await call(client, "OBJECT ENCODING", name, timeout_s=5) == b"embstr"
        assert await call(client, "DEL", name, timeout_s=5) == 1
