"""Planted bugs: each takes one safeguard away. The rules must find every one of them."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

from duly.actors.claiming import Claiming
from duly.actors.firing import Firing
from duly.actors.prefetcher import Prefetcher
from duly.actors.runtime import Mailbox
from duly.actors.runtime.child import Place
from duly.actors.ticker import Ticker
from duly.actors.vanished import Vanished
from duly.storage import submitting
from duly.storage.claims import Claimed
from duly.storage.reports import Reports
from duly.storage.submitting import Submitted
from simulated import course_statements, statements, task_statements
from simulated.store import Row, Store
from simulated.world import Verdict, World, simulate


class Bug(NamedTuple):
    """`faults`: what goes wrong in the worlds that look for it. `breaks`: the rule that it breaks."""

    breaks: str
    faults: frozenset[str]
    statements: dict[str, Callable[..., list[Row]]]
    method: tuple[Any, str, Any] | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Within the block the product has it."""
        if self.method is None:
            yield
            return
        with patch.object(*self.method):
            yield

    def simulate(self, seed: int) -> Verdict:
        """Run a seed on the product with this bug."""

        def prepare(world: World) -> None:
            world.store.overrides.update(self.statements)

        with self.planted():
            return simulate(seed, only=self.faults, prepare=prepare)

    def is_found(self, seed: int) -> bool:
        """Whether this seed breaks the very rule that the bug breaks."""
        return any(re.search(self.breaks, said) for said in self.simulate(seed).broken)


# Statements


def _claim_any_version(store: Store, ids: Any, versions: Any, *args: Any) -> list[Row]:
    return statements.claim_rows(store, ids, [None] * len(ids), *args, True)  # type: ignore[call-arg]


def _claim_any_epoch(store: Store, *args: Any) -> list[Row]:
    return statements.claim_rows(store, *args, True)  # type: ignore[call-arg]


def _claim_without_count(store: Store, *args: Any) -> list[Row]:
    *plain, _, _ = args
    return [row | {"held_id": None, "held": None} for row in statements.claim(store, *plain)]


def _take_without_epoch(
    store: Store, slots: list[int], owner: str, now: datetime, unless_others: list[int]
) -> list[Row]:
    answers = []
    for slot in slots:
        old, epoch = store.slots[slot]["owner"], max(1, store.slots[slot]["epoch"])
        store.take(slot, owner, epoch)
        answers.append({"slot": slot, "owner": old, "epoch": epoch})
    return answers


def _complete_any_token(
    store: Store, ids: list[Any], tokens: list[int], by: Any, began: Any, ended: Any,
    results: Any, now: datetime,
) -> list[Row]:  # fmt: skip
    done = []
    for at, task_id in enumerate(ids):
        row = store.tasks.get(task_id)
        if row is not None and row["status"] == "running" and row["schedule"] is None:
            said = (by[at], began[at], ended[at], results[at])
            statements.complete_row(store, row, tokens[at], *said, now)
            done.append({**statements.pick(row, statements.COMPLETED), "version": tokens[at]})
    return done


def _attempts_any_token(store: Store, ids: list[Any], tokens: list[int]) -> list[Row]:
    held = [store.tasks.get(task_id) for task_id in ids]
    known = [row["version"] if row else -1 for row in held]
    answers = statements.attempts(store, ids, known)
    asked = dict(zip(ids, tokens, strict=True))
    return [{**answer, "version": asked[answer["id"]]} for answer in answers]


def _settle_any_token(store: Store, *args: Any) -> list[Row]:
    *columns, skipped_ids, skipped_at, skipped_why, now = args
    found = []
    skipped = list(zip(skipped_ids, skipped_at, skipped_why, strict=True))
    for values in zip(*columns, strict=True):
        said = dict(zip(statements.SETTLED, values, strict=True))
        row = store.tasks.get(said["id"])
        if row is not None and row["status"] == "running":
            found.append(statements.settle_row(store, row, said, skipped, now))
    return found


def _settle_back(store: Store, *args: Any) -> list[Row]:
    answers = statements.settle(store, *args)
    for answer in answers:
        if answer["version"] is not None:
            store.put({**store.tasks[answer["id"]], "version": 0})
    return answers


def _settle_from_now(store: Store, *args: Any) -> list[Row]:
    columns, now = list(args), args[-1]
    at = statements.SETTLED.index("next")
    columns[at] = [one and one + (now - one) % timedelta(milliseconds=7) for one in args[at]]
    return statements.settle(store, *columns)


def _settle_without_skips(store: Store, *args: Any) -> list[Row]:
    *columns, _ids, _occurrences, _errors, now = args
    return statements.settle(store, *columns, [], [], [], now)


def _advance_without_skips(store: Store, *args: Any) -> list[Row]:
    *columns, _ids, _occurrences, _errors, resume, now = args
    return course_statements.advance(store, *columns, [], [], [], resume, now)


def _cancel_in_word_only(store: Store, task_id: Any, now: datetime, *args: Any) -> list[Row]:
    row = store.tasks.get(task_id)
    if row is None or row["status"] != "pending":
        return task_statements.cancel(store, task_id, now, *args)
    return [task_statements.cancelled(row, row)]


def _cancel_without_verdict(store: Store, task_id: Any, *args: Any) -> list[Row]:
    row = store.tasks.get(task_id)
    answer = task_statements.cancel(store, task_id, *args)
    if answer and row is not None and row["status"] == "pending":
        store.runs[:] = [run for run in store.runs if run["task_id"] != task_id
                         or run["outcome"] != "cancelled"]  # fmt: skip
    return answer


def _cancel_without_skips(store: Store, *args: Any) -> list[Row]:
    return task_statements.cancel(store, *args[:-7], [], [], *args[-5:])


def _settle_every_attempt(store: Store, *args: Any) -> list[Row]:
    answers = statements.settle(store, *args)
    for run in store.runs:
        if run["outcome"] == "failed":
            run["verdict"] = "failed"
    return answers


def _start_whoever_asks(
    store: Store, task_id: Any, token: int, start_id: str, worker: str, now: datetime
) -> list[Row]:
    return [{"id": task_id}]


# The product


_insert = submitting.submit


async def _answer_before_commit(
    db: Any, new: list[submitting.NewTask], now: datetime, *until: datetime
) -> list[Submitted]:
    asyncio.ensure_future(_insert(db, new, now, *until)).add_done_callback(
        lambda task: task.cancelled() or task.exception()
    )
    return [Submitted(one.id, 0, now, None, False, None, None) for one in new]


_claim = Claiming.claim


async def _publish_first(self: Claiming, rows: Any, own: Any, limited: Any) -> Any:
    for row in rows:
        one = Claimed(
            row.id, row.version + 1, "t", row.queue, row.next_run_at, 0, 5.0, "retry", "1"
        )
        await self._context.streams.publish(row.queue, [one])
    return await _claim(self, rows, own, limited)


_read_reports = Reports.read


async def _forget_reports_at_once(self: Reports, *args: Any, **kwargs: Any) -> Any:
    reports = await _read_reports(self, *args, **kwargs)
    for report in reports:
        said = report.fields
        await self.settle(report.queue, [(report.entry_id, said[b"id"], said[b"token"])])
    return reports


async def _never_again(self: Vanished, queue: str) -> int:
    return 0


_take = Prefetcher._take


def _keep_to_the_first(self: Prefetcher, message: Any) -> None:
    if not (self._epochs and hasattr(message, "epochs")):
        _take(self, message)


async def _publish_at_once(self: Firing, left: Any, publish: Any, out: Any) -> Any:
    return await publish(left)


_now_us = Ticker._now_us
_end = Place.end


def _drop_mailbox(self: Place) -> None:
    box: Mailbox[Any] | None = self.mailbox
    if box is not None:
        box._waiting.clear()
    _end(self)


def _bug(
    breaks: str, *faults: str, method: tuple[Any, str, Any] | None = None, **statements: Any
) -> Bug:
    return Bug(breaks, frozenset(faults), statements, method)


BUGS = {
    "a claim does not compare the version": _bug(
        "before it was due", "lossy_channels", claim=_claim_any_version
    ),
    "a claim does not compare the epoch": _bug(
        "claimed under epoch", "redis_loss", "postgres_noise", claim=_claim_any_epoch
    ),
    "a claim does not count who holds the key": _bug(
        "run with the key", claim_in_turn=_claim_without_count
    ),
    "a take-over does not raise the epoch": _bug(
        "took it under epoch", "node_kill", "node_stop", take_slots=_take_without_epoch
    ),
    "a report is recorded whatever its token": _bug(
        "two recorded outcomes", "hang", complete=_complete_any_token
    ),
    "a retry takes the token back": _bug("handed out twice", settle=_settle_back),
    "a cancel is acknowledged and not done": _bug(
        "started after the cancel", cancel=_cancel_in_word_only
    ),
    "the cancel of a task that waits leaves no verdict": _bug(
        r"has the verdicts \[\]", cancel=_cancel_without_verdict
    ),
    "what came due is not accounted for at a cancel": _bug(
        "was cancelled after its occurrence",
        "node_kill",
        "redis_outage",
        "postgres_outage",
        cancel=_cancel_without_skips,
    ),
    "an attempt that is tried again is taken for a verdict": _bug(
        "has the verdicts", settle=_settle_every_attempt
    ),
    "a confirmed start is granted to whoever asks": _bug(
        "started twice under", "redis_loss", "hang", start=_start_whoever_asks
    ),
    "a submission is acknowledged before its commit": _bug(
        "is kept 0 times",
        "postgres_noise",
        "node_kill",
        method=(submitting, "submit", _answer_before_commit),
    ),
    "a task is published before its claim": _bug(
        "before that was claimed", method=(Claiming, "claim", _publish_first)
    ),
    "a failure is recorded whatever its token": _bug(
        "two recorded outcomes",
        "redis_noise",
        "hang",
        attempts=_attempts_any_token,
        settle=_settle_any_token,
    ),
    "the next occurrence follows from when the last one ended": _bug(
        "had occurrences that are none", settle=_settle_from_now
    ),
    "what came due meanwhile is dropped without a record": _bug(
        "left out its occurrence", settle=_settle_without_skips
    ),
    "missed occurrences are dropped without a record": _bug(
        "left out its occurrence", "postgres_outage", "redis_outage", advance=_advance_without_skips
    ),
    "a report is deleted before it is recorded": _bug(
        "after that was reported",
        "node_crash",
        method=(Reports, "read", _forget_reports_at_once),
    ),
    "what is in no stream is not published again": _bug(
        "is still running at the end",
        "node_kill",
        "redis_loss",
        method=(Vanished, "republish", _never_again),
    ),
    "the prefetcher does not hear of slots that were gained": _bug(
        "is still pending at the end",
        "node_kill",
        "node_stop",
        method=(Prefetcher, "_take", _keep_to_the_first),
    ),
    "the wheel's clock is fast": _bug(
        "before it was due", method=(Ticker, "_now_us", lambda self: _now_us(self) + 1_500_000)
    ),
    "what is claimed ahead of its time is published at once": _bug(
        "before its time", method=(Firing, "_when_due", _publish_at_once)
    ),
    "a restart of an actor empties its mailbox": _bug(
        "was never answered", "actor_crash", "postgres_stall", method=(Place, "end", _drop_mailbox)
    ),
}
"""What is wrong, in words, and the bug."""
