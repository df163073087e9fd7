"""Record a batch of ended attempts: successes in one statement, everything else in another."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from duly.actors.outcomes import decide, without_repeats
from duly.storage import claims
from duly.storage.claims import Ended
from duly.storage.database import Database
from duly.storage.tasks import Waiting

log = logging.getLogger("duly.recorder")

Recorded = tuple[set[tuple[UUID, int]], list[Waiting]]
Write = Callable[[Database, list[Ended], datetime], Awaitable[Recorded]]

_SUCCESS = frozenset({"completed"})
_OTHERS = frozenset({"failed", "lost", "timed_out", "snoozed"})


async def record(db: Database, ended: Sequence[Ended], now: datetime) -> Recorded:
    """Answers the (id, token) that were recorded (the others are stale), and what waits again.

    A report that PostgreSQL cannot hold (say, a NUL in a result) fails its own task only.
    """
    unique = without_repeats(ended)
    recorded: set[tuple[UUID, int]] = set()
    waiting: list[Waiting] = []
    for write, outcomes in ((_complete, _SUCCESS), (_settle, _OTHERS)):
        # Apart: a report that the second cannot store must not make the first come twice.
        some = [one for one in unique if one.outcome in outcomes]
        if some:
            done, again = await _halving(write, db, some, now)
            recorded |= done
            waiting += again
    return recorded, waiting


async def _halving(write: Write, db: Database, ended: list[Ended], now: datetime) -> Recorded:
    try:
        return await write(db, ended, now)
    except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
        if len(ended) == 1:
            return await _settle(db, [_unstorable(ended[0], error)], now)
        half = len(ended) // 2
        first, again = await _halving(write, db, ended[:half], now)
        second, more = await _halving(write, db, ended[half:], now)
        return first | second, again + more


async def _complete(db: Database, ended: list[Ended], now: datetime) -> Recorded:
    return await claims.complete(db, ended, now), []


async def _settle(db: Database, ended: list[Ended], now: datetime) -> Recorded:
    attempts = await claims.attempts(db, [(one.id, one.token) for one in ended])
    decisions = [
        decide(one, attempts[one.id], now)
        for one in ended
        if one.id in attempts and attempts[one.id].token == one.token
    ]
    tokens = {d.ended.id: d.ended.token for d in decisions}
    settled = await claims.settle(db, decisions, now) if decisions else []
    recorded = {(one.id, tokens[one.id]) for one in settled}
    return recorded, [Waiting(one.due, one.slot_owner) for one in settled if one.due is not None]


def _unstorable(ended: Ended, error: Exception) -> Ended:
    log.warning("what was reported of task %s cannot be stored: %s", ended.id, error)
    said = {"type": "invalid_report", "message": f"the report cannot be stored: {error}"}
    text = msgspec.json.encode(said).decode()
    return ended._replace(
        outcome="failed", result=None, error=text, may_retry=False, worker=None, delay_s=None,
        started_at=None,
    )  # fmt: skip
