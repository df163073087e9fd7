"""Record a batch of ended attempts: one-offs that completed in one statement, all else in another."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

import asyncpg
import msgspec

from duly.actors import trail
from duly.actors.meters.meters import Measured
from duly.actors.outcomes import decide, without_repeats
from duly.storage import claims
from duly.storage.claims import DrawId, Ended, Settlement
from duly.storage.database import Database
from duly.storage.tasks import Waiting
from duly.wheel.occurrences import SKIPS_MAX

log = logging.getLogger("duly.recorder")


class Recorded(NamedTuple):
    """What was recorded (the rest is stale), and what follows from it."""

    pairs: set[tuple[UUID, int]]
    """Those (id, token)."""
    waiting: list[Waiting]
    measured: list[Measured]
    """As long as `pairs`; for the statistics."""
    freed: set[tuple[str, str | None]]
    """The queues and concurrency keys that these attempts were of."""

    @classmethod
    def nothing(cls) -> "Recorded":
        """As before anything is recorded."""
        return cls(set(), [], [], set())


Write = Callable[[Database, list[Ended], datetime, DrawId, Recorded], Awaitable[None]]

_SUCCESS = frozenset({"completed"})
_MICROSECOND = timedelta(microseconds=1)


async def record(
    db: Database,
    ended: Sequence[Ended],
    now: datetime,
    done: Recorded | None = None,
    draw_id: DrawId = uuid4,
) -> Recorded:
    """Answers what was recorded; all else is stale. `draw_id` makes the ids of tasks that follow.

    A report that PostgreSQL cannot hold (say, a NUL in a result) fails its own task only. What is
    recorded is added to `done`, if that is given, also when StoreUnavailableError ends the rest.
    """
    done = Recorded.nothing() if done is None else done
    # In one order: a report that came twice may be in two pages at once, whose statements would lock each other out.
    unique = sorted(without_repeats(ended), key=lambda one: one.id)
    # Apart: a report that the second cannot store must not make the first come twice.
    await _halving(_complete, db, [r for r in unique if r.outcome in _SUCCESS], now, draw_id, done)
    # A success that is not recorded is stale, or of a periodic task, which goes on, or others follow it.
    others = [r for r in unique if (r.id, r.token) not in done.pairs]
    await _halving(_settle, db, others, now, draw_id, done)
    return done


async def _halving(
    write: Write, db: Database, ended: list[Ended], now: datetime, draw_id: DrawId, done: Recorded
) -> None:
    if not ended:
        return
    try:
        await write(db, ended, now, draw_id, done)
    except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
        if len(ended) == 1:
            await _settle(db, [_unstorable(ended[0], error)], now, draw_id, done)
            return
        half = len(ended) // 2
        for some in (ended[:half], ended[half:]):
            await _halving(write, db, some, now, draw_id, done)


async def _complete(
    db: Database, ended: list[Ended], now: datetime, draw_id: DrawId, done: Recorded
) -> None:
    completed = await claims.complete(db, ended, now)
    reports = {(one.id, one.token): one for one in ended}
    done.pairs.update((one.id, one.token) for one in completed)
    done.measured.extend(
        _measured(reports[one.id, one.token], one.type, one.next_run_at) for one in completed
    )
    done.freed.update((one.queue, one.concurrency_key) for one in completed)


async def _settle(
    db: Database, ended: list[Ended], now: datetime, draw_id: DrawId, done: Recorded
) -> None:
    while ended:
        decisions = await _decide(db, ended, now)
        written = await claims.settle(db, decisions, now, draw_id) if decisions else []
        settled = [one for one in written if one.ended]
        decided = {d.ended.id: d for d in decisions}
        done.pairs.update((one.id, decided[one.id].ended.token) for one in settled)
        done.measured.extend(_settled(decided[one.id]) for one in settled)
        done.waiting.extend(
            Waiting(one.due, one.slot_owner) for one in written if one.due is not None
        )
        done.freed.update((one.queue, one.freed_key) for one in settled)
        # A schedule that was changed since it was read is decided on anew, and so is a task for which somebody
        # began to wait meanwhile. What is stale is not read again.
        ended = [d.ended for d in decisions if (d.ended.id, d.ended.token) not in done.pairs]


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


def _settled(decision: Settlement) -> Measured:
    ended, attempt, place = decision.ended, decision.attempt, decision.place
    failed = ended.outcome not in ("completed", "snoozed")
    return _measured(ended, attempt.type, attempt.next_run_at)._replace(
        retried=decision.counts,
        exhausted=failed and not decision.counts,
        skipped=0 if place is None else len(place.skipped),
    )


def _measured(ended: Ended, task_type: str, due: datetime | None) -> Measured:
    began, over = ended.started_at, ended.finished_at
    # Of what no worker reported, nobody knows when it began.
    told = began is not None and ended.outcome not in ("lost", "timed_out")
    return Measured(
        task_type,
        ended.outcome,
        (over - began) // _MICROSECOND if told and began and over else None,
        (began - due) // _MICROSECOND if told and began and due else None,
    )
