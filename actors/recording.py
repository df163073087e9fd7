"""Record a batch of ended attempts: one-offs that completed in one statement, all else in another."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from duly.actors import trail
from duly.actors.outcomes import decide, without_repeats
from duly.storage import claims
from duly.storage.claims import Ended, Settlement
from duly.storage.database import Database
from duly.storage.tasks import Waiting
from duly.wheel.occurrences import SKIPS_MAX

log = logging.getLogger("duly.recorder")

Recorded = tuple[set[tuple[UUID, int]], list[Waiting]]
Write = Callable[[Database, list[Ended], datetime], Awaitable[Recorded]]

_SUCCESS = frozenset({"completed"})


async def record(db: Database, ended: Sequence[Ended], now: datetime) -> Recorded:
    """Answers the (id, token) that were recorded (the others are stale), and what waits again.

    A report that PostgreSQL cannot hold (say, a NUL in a result) fails its own task only.
    """
    unique = without_repeats(ended)
    # Apart: a report that the second cannot store must not make the first come twice.
    recorded, waiting = await _all_of(
        _complete, db, [r for r in unique if r.outcome in _SUCCESS], now
    )
    # A success that is not recorded is stale, or of a periodic task, which goes on.
    others = [r for r in unique if (r.id, r.token) not in recorded]
    done, again = await _all_of(_settle, db, others, now)
    return recorded | done, waiting + again


async def _all_of(write: Write, db: Database, ended: list[Ended], now: datetime) -> Recorded:
    return await _halving(write, db, ended, now) if ended else (set(), [])


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
    recorded: set[tuple[UUID, int]] = set()
    waiting: list[Waiting] = []
    while ended:
        decisions = await _decide(db, ended, now)
        settled = await claims.settle(db, decisions, now) if decisions else []
        tokens = {d.ended.id: d.ended.token for d in decisions}
        recorded |= {(one.id, tokens[one.id]) for one in settled}
        waiting += [Waiting(one.due, one.slot_owner) for one in settled if one.due is not None]
        # A schedule that was changed since it was read is decided on anew. What is stale is not read again.
        ended = [d.ended for d in decisions if (d.ended.id, d.ended.token) not in recorded]
    return recorded, waiting


async def _decide(db: Database, ended: list[Ended], now: datetime) -> list[Settlement]:
    """Of the attempts that still run."""
    attempts = await claims.attempts(db, [(one.id, one.token) for one in ended])
    decisions: list[Settlement] = []
    room = SKIPS_MAX
    for one in ended:
        attempt = attempts.get(one.id)
        if attempt is not None and attempt.token == one.token:
            decision = decide(one, attempt, now, skips_max=room)
            room -= len(decision.place.skipped) if decision.place is not None else 0
            decisions.append(decision)
    return decisions


def _unstorable(ended: Ended, error: Exception) -> Ended:
    about = trail.fields(ended.id, ended.token)
    log.warning("what was reported of task %s cannot be stored: %s", ended.id, error, extra=about)
    said = {"type": "invalid_report", "message": f"the report cannot be stored: {error}"}
    text = msgspec.json.encode(said).decode()
    return ended._replace(
        outcome="failed", result=None, error=text, may_retry=False, worker=None, delay_s=None,
        started_at=None,
    )  # fmt: skip
