"""Ends attempts that nobody will report: by way of the recorder, which compares the tokens."""

from collections.abc import Sequence
from uuid import UUID

from duly.actors.context import Context
from duly.actors.messages import Outcomes
from duly.actors.outcomes import is_token, worker_name
from duly.actors.runtime import Reply
from duly.storage.claims import Ended, Outcome
from duly.storage.errors import StoreUnavailableError
from duly.storage.stream_facts import Held
from duly.wheel.durations import from_us, to_us

_ANSWER_S = 30.0


async def end(context: Context, ended: list[Ended]) -> int:
    """Have these outcomes recorded; answers how many counted.

    Raises `StoreUnavailableError` if they cannot be recorded now.
    """
    if not ended:
        return 0
    reply: Reply[list[bool]] = Reply()
    await context.boxes.recorder.send(Outcomes(ended, reply))
    try:
        return sum(await reply.wait(_ANSWER_S))
    except TimeoutError:
        raise StoreUnavailableError("the recorder does not answer") from None


async def end_held(
    context: Context, queue: str, consumer: str, held: Sequence[Held], outcome: Outcome
) -> int:
    """Record the outcome of entries that `consumer` holds, then take them out of the stream.

    Answers how many counted. Raises `StoreUnavailableError`, and what redis-py raises.
    """
    now = from_us(context.clock.now_us())
    name = worker_name(consumer.encode(errors="replace"))
    ended = [
        Ended(
            id=task_id, token=int(entry.token), outcome=outcome, worker=name,
            started_at=from_us(to_us(now) - entry.idle_ms * 1000), finished_at=now,
            error=f'"{outcome}"',
        )
        for entry in held
        if (task_id := _uuid(entry.id)) is not None and is_token(entry.token)
    ]  # fmt: skip
    count = await end(context, ended)
    # Not before it is recorded: until then the entry is what a new owner would find.
    items = [(entry.entry_id, entry.id, entry.token) for entry in held]
    await context.streams.settle(queue, items)
    return count


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
