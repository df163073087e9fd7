"""What a handler can learn from its context."""

import asyncio
import re
import time
import uuid
from datetime import UTC, datetime

from duly.nodes.worker.context import Context


def context(due_us: int = 1_790_000_000_000_000, deadline: float = 0.0) -> Context:
    return Context(
        id="id1",
        type="t",
        queue="q",
        token=42,
        attempt=2,
        due_us=due_us,
        deadline=deadline,
        worker="w",
    )


def test_due_is_exact_and_aware() -> None:
    assert context().due == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    assert context(1_790_000_000_000_001).due.microsecond == 1


def test_the_key_names_task_and_occurrence_and_the_token_is_the_attempts() -> None:
    assert context().headers() == {
        "Idempotency-Key": "id1.1790000000000000",
        "Duly-Fencing-Token": "42",
    }
    assert context(1_790_000_000_000_250).headers()["Idempotency-Key"] == "id1.1790000000000250"


def test_the_key_fits_into_any_header() -> None:
    ctx = context(due_us=253_402_300_799_999_999)
    ctx.id = str(uuid.UUID(int=2**128 - 1))
    assert re.fullmatch(r"[A-Za-z0-9.-]{1,60}", ctx.headers()["Idempotency-Key"])


def test_remaining_time_ends_at_zero() -> None:
    assert context(deadline=time.monotonic() - 1).remaining_s == 0
    assert 9 < context(deadline=time.monotonic() + 10).remaining_s <= 10


async def test_a_handler_can_wait_for_its_cancellation() -> None:
    ctx = context()
    waiting = asyncio.create_task(ctx.wait_cancelled())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not ctx.cancelled
    ctx.cancel()
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(ctx.wait_cancelled(), 1)
    assert ctx.cancelled


def test_it_names_itself() -> None:
    assert repr(context()) == "<Context t id1 attempt 2 token 42>"
