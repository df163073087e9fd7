"""A reply: answered once, and harmless whoever is gone."""

import anyio
import pytest

from duly.actors.runtime import Reply


async def test_the_answer_arrives() -> None:
    reply: Reply[int] = Reply()
    assert not reply.answered
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            assert await reply.wait(10) == 7

        tasks.start_soon(ask)
        await anyio.sleep(1)
        reply.set(7)
    assert reply.answered
    assert await reply.wait(0) == 7


async def test_an_error_arrives() -> None:
    reply: Reply[int] = Reply()
    reply.fail(LookupError("no such task"))
    with pytest.raises(LookupError, match="no such task"):
        await reply.wait(10)


async def test_no_answer_is_a_timeout() -> None:
    began = anyio.current_time()
    with pytest.raises(TimeoutError, match=r"within 2\.5 s"):
        await Reply[int]().wait(2.5)
    assert anyio.current_time() - began == 2.5


async def test_the_first_answer_counts() -> None:
    reply: Reply[int] = Reply()
    reply.set(1)
    reply.set(2)
    reply.fail(ValueError("too late"))
    assert await reply.wait(1) == 1
    failed: Reply[int] = Reply()
    failed.fail(ValueError("first"))
    failed.set(2)
    with pytest.raises(ValueError, match="first"):
        await failed.wait(1)


async def test_none_is_an_answer() -> None:
    reply: Reply[None] = Reply()
    reply.set(None)
    await reply.wait(1)
    assert reply.answered


async def test_an_asker_who_left_does_no_harm() -> None:
    reply: Reply[int] = Reply()
    with anyio.move_on_after(1):
        await reply.wait(10)
    reply.set(1)
    assert await reply.wait(1) == 1
