"""Record a batch of ended attempts: successes in one statement, everything else in another."""

import logging
from collections.abc import Sequence
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


async def record(db: Database, ended: Sequence[Ended], now: datetime) -> Recorded:
    """Answers the (id, token) that were recorded (the others are stale), and what waits again.

    A report that PostgreSQL cannot hold (say, a NUL in a result) fails its own task only.
    """
    unique = without_repeats(ended)
    if not unique:
        return set(), []
    try:
        return await _record(db, unique, now)
    except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
        if len(unique) == 1:
            return await _record(db, [_unstorable(unique[0], error)], now)
        half = len(unique) // 2
        first, again = await record(db, unique[:half], now)
        second, more = await record(db, unique[half:], now)
        return first | second, again + more


async def _record(db: Database, ended: list[Ended], now: datetime) -> Recorded:
    recorded: set[tuple[UUID, int]] = set()
    waiting: list[Waiting] = []
    successes = [one for one in ended if one.outcome == "completed"]
    others = [one for one in ended if one.outcome != "completed"]
    if successes:
        recorded |= await claims.complete(db, successes, now)
    if others:
        pairs = [(one.id, one.token) for one in others]
        attempts = await claims.attempts(db, pairs)
        decisions = [
            decide(one, attempts[one.id], now)
            for one in others
            if one.id in attempts and attempts[one.id].token == one.token
        ]
        tokens = {d.ended.id: d.ended.token for d in decisions}
        for settled in await claims.settle(db, decisions, now) if decisions else []:
            recorded.add((settled.id, tokens[settled.id]))
            if settled.due is not None:
                waiting.append(Waiting(settled.due, settled.slot_owner))
    return recorded, waiting


def _unstorable(ended: Ended, error: Exception) -> Ended:
    log.warning("what was reported of task %s cannot be stored: %s", ended.id, error)
    said = {"type": "invalid_report", "message": f"the report cannot be stored: {error}"}
    text = msgspec.json.encode(said).decode()
    return ended._replace(
        outcome="failed", result=None, error=text, may_retry=False, worker=None, delay_s=None,
        started_at=None,
    )  # fmt: skip
