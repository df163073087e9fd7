"""Joins submissions that arrive together into one insert and one commit.

A lone submission goes at once. While a statement is under way others gather and go together: the
busier the node, the larger the batch, with no timer involved.
"""

import asyncio
import logging
from datetime import datetime, timedelta

import anyio
import asyncpg

from duly.actors import trail, wakes
from duly.actors.context import Context
from duly.actors.messages import Submit
from duly.actors.runtime import Actor, MailboxClosedError
from duly.storage import submitting
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import DueRow
from duly.storage.submitting import NewTask, Submitted
from duly.storage.tasks import Waiting
from duly.wheel.durations import from_us

log = logging.getLogger("duly.submitter")

_BATCH = 500
_LATE_S = 10.0  # a statement's answer comes sooner
_AT_ONCE = 2  # statements under way: one commits while the next is being filled


class Submitter(Actor[Submit]):
    """Answers every submission, or lets it fail; it keeps none."""

    name = "submitter"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.submitter)
        self._context = context
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        async with anyio.create_task_group() as inserters:
            for _ in range(_AT_ONCE):
                inserters.start_soon(self._insert_all)

    async def _insert_all(self) -> None:
        while True:
            async with self._turn:
                try:
                    messages = await self.mailbox.receive_batch(_BATCH)
                except MailboxClosedError:
                    return
                self.mailbox.handled()
            await self._insert(messages)

    async def _insert(self, messages: list[Submit]) -> None:
        # Whoever was told "not now" may submit again: what was not begun by then is dropped.
        messages = [message for message in messages if not message.reply.answered]
        try:
            # One statement may not name a key twice: a repeat waits for the next one.
            first, repeats = _without_repeats(messages)
            while first:
                await self._submit(first)
                first, repeats = _without_repeats(repeats)
        except BaseException as error:
            stopped = StoreUnavailableError("stopped", in_doubt=True)
            failure = error if isinstance(error, Exception) else stopped
            for message in messages:
                message.reply.fail(failure)
            if not isinstance(error, StoreUnavailableError):
                raise

    async def _submit(self, messages: list[Submit]) -> None:
        try:
            answers = await submitting.submit(
                self._context.api_db, [m.task for m in messages], *times(self._context)
            )
        except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
            # A check before us has a hole; it is the one task's trouble, not that of all.
            if len(messages) == 1:
                task_id = messages[0].task.id
                log.exception("task %s cannot be stored", task_id, extra=trail.fields(task_id))
                messages[0].reply.fail(error)
                return
            half = len(messages) // 2
            await self._submit(messages[:half])
            await self._submit(messages[half:])
            return
        by_id = {answer.id: answer for answer in answers}
        for message in messages:
            message.reply.set(by_id[message.task.id])
        await tell(self._context, [m.task for m in messages], answers)


def times(context: Context) -> tuple[datetime, datetime, datetime]:
    """Of a submission now, as `submitting.submit` takes them."""
    now, options = from_us(context.clock.now_us()), context.options
    keys_until = now + timedelta(seconds=options.idempotency_ttl_s)
    return now, keys_until, now + timedelta(seconds=options.horizon_s + _LATE_S)


async def tell(context: Context, asked: list[NewTask], answers: list[Submitted]) -> None:
    """Tell whoever looks on of what was stored, and the owners of slots of what is due soon."""
    context.feed.tell("submitted", (answer.id for answer in answers if answer.slot is not None))
    if soon := waiting(asked, answers):
        await wakes.wake(context, soon)


def waiting(asked: list[NewTask], answers: list[Submitted]) -> list[Waiting]:
    """Of these submissions those that now wait in the store, as far as a node is to hear of it."""
    owned = {a.id: a for a in answers if a.slot_owner is not None}
    found = []
    for task in asked if owned else ():
        answer = owned.get(task.id)
        if answer is not None and answer.slot is not None:
            row = DueRow(
                task.id, answer.slot, answer.due or task.due, 0, task.priority, task.queue, task.concurrency_key,
                task.fairness_key,
            )  # fmt: skip
            found.append(Waiting(row, answer.slot_owner))
    return found


def _without_repeats(messages: list[Submit]) -> tuple[list[Submit], list[Submit]]:
    ids = {message.task.id for message in messages}
    if len(ids) == len(messages) and all(message.task.key is None for message in messages):
        return messages, []
    seen: set[object] = set()
    first: list[Submit] = []
    repeats: list[Submit] = []
    for message in messages:
        names = {message.task.id, message.task.key} - {None}
        (repeats if names & seen else first).append(message)
        seen |= names
    return first, repeats
