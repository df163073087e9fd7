"""From facts to reasons: why a task has not run. Pure; the facts are gathered elsewhere (explain).

What holds a task now comes first. Of several that hold it, first what a person did to the task itself,
then its time, then what keeps every task of its slot or queue, then what it waits for among others.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from duly.actors import line
from duly.actors.ownership import Owner
from duly.nodes.api import reasons
from duly.nodes.api.moments import moment, span
from duly.nodes.api.reasons import AnyReason
from duly.storage.explain import Ahead, Standing
from duly.storage.permits import Rate
from duly.storage.sight import QueueSight

_NAMED = 10  # of the tasks that hold a key


class Trouble(NamedTuple):
    """Redis as the node asked sees it: what does not work, and since when."""

    since: datetime
    detail: str


class RateNow(NamedTuple):
    """A queue's rate, and how long until one more of its tasks may go."""

    limit: Rate
    wait_s: float


class Facts(NamedTuple):
    """What is known at the time `at`.

    None: `redis`: it does what it should; `broken`: the queue's keys are right; `slot`: not known, or
    not asked; `queue`: not known, or not asked; `rate`: it has none, or as before; `ahead`: not due.
    `holders`: of its concurrency key, if it is due and has one; at most as many as may be.
    """

    at: datetime
    task: Standing
    window_floor: int
    redis: Trouble | None = None
    broken: str | None = None
    slot: Owner | None = None
    queue: QueueSight | None = None
    rate: RateNow | None = None
    ahead: Ahead | None = None
    holders: Sequence[UUID] = ()


def judge(facts: Facts) -> list[AnyReason]:
    """At least one reason; the first one holds the task now."""
    if facts.task.status == "pending":
        return _pending(facts)
    if facts.task.status == "running":
        return _running(facts)
    return [_finished(facts)]


def _finished(facts: Facts) -> AnyReason:
    status, ended = facts.task.status, facts.task.finished_at
    assert ended is not None
    return reasons.Finished(
        message=f"It has ended: {status} at {moment(ended, facts.at)}.",
        outcome=status,
        finished_at=ended,
    )


def _pending(facts: Facts) -> list[AnyReason]:
    due = facts.task.next_run_at
    assert due is not None
    found = [*_paused(facts)]
    is_due = due <= facts.at
    if not is_due:
        found.append(_not_due(facts, due))
    found += [*_redis(facts), *_slot(facts), *_queue_paused(facts), *_no_worker(facts)]
    if is_due:
        found += [*_key(facts), *_rate(facts), *_capacity(facts)]
    return found or [_due_now(facts, due)]


def _running(facts: Facts) -> list[AnyReason]:
    task, queue = facts.task, facts.queue
    assert task.owner is not None
    assert task.claimed_at is not None
    if queue is None:
        known = task.worker is not None and task.started_at is not None  # its start was confirmed
        found = [*_redis(facts), _at_worker(facts) if known else _claimed(facts)]
    elif queue.worker is not None:
        found = [_at_worker(facts)]
    elif queue.in_stream:
        found = [*_no_worker(facts), _in_stream(facts, queue)]
    else:
        found = [*_redis(facts), *_slot(facts), _claimed(facts)]
    return [*found, *_paused(facts)]


# The task itself


def _paused(facts: Facts) -> list[AnyReason]:
    task = facts.task
    if not task.paused:
        return []
    who = f" by {task.paused_by}" if task.paused_by else ""
    when = f" at {moment(task.paused_at, facts.at)}" if task.paused_at else ""
    verb = "was" if when else "is"
    message = f"It {verb} paused{who}{when}: it does not begin until it is resumed."
    return [reasons.Paused(message=message, by=task.paused_by, since=task.paused_at)]


def _not_due(facts: Facts, due: datetime) -> AnyReason:
    task, when = facts.task, moment(due, facts.at)
    if not (task.begun and task.retry_count):
        return reasons.NotDue(message=f"It is not due before {when}.", due=due)
    attempt, attempts = task.retry_count + 1, task.max_retries + 1
    message = f"Attempt {attempt - 1} of {attempts} failed; the next one begins at {when}."
    return reasons.BackOff(message=message, until=due, attempt=attempt, attempts=attempts)


# What keeps every task of the slot or the queue


def _redis(facts: Facts) -> list[AnyReason]:
    found: list[AnyReason] = []
    if facts.redis is not None:
        since, detail = facts.redis
        message = (
            f"Redis has not worked for this node since {moment(since, facts.at)}: {detail}; "
            "nothing is fired without it."
        )
        found.append(reasons.RedisUnreachable(message=message, since=since, detail=detail))
    if facts.broken is not None:
        queue = facts.task.queue
        message = f"A key of queue {queue} in Redis cannot be used: {facts.broken}."
        found.append(reasons.QueueUnusable(message=message, queue=queue, detail=facts.broken))
    return found


def _slot(facts: Facts) -> list[AnyReason]:
    owner, slot = facts.slot, facts.task.slot
    if owner is None or owner.id is not None:
        return []
    name = f"its slot {slot}" + (f" (last owner: {owner.last})" if owner.last else "")
    now = f"owns {name} now"
    if owner.since:
        now = f"has owned {name} since {moment(owner.since, facts.at)}"
    message = f"No node {now}: it fires when one takes it over."
    return [
        reasons.SlotUnowned(message=message, slot=slot, since=owner.since, last_owner=owner.last)
    ]


def _queue_paused(facts: Facts) -> list[AnyReason]:
    task = facts.task
    if not task.queue_paused:
        return []
    since = task.queue_paused_at
    assert since is not None
    who = f" by {task.queue_paused_by}" if task.queue_paused_by else ""
    message = (
        f"Its queue, {task.queue}, was paused{who} at {moment(since, facts.at)}: nothing of it is "
        "fired until it is resumed."
    )
    return [
        reasons.QueuePaused(message=message, queue=task.queue, by=task.queue_paused_by, since=since)
    ]


def _no_worker(facts: Facts) -> list[AnyReason]:
    if facts.queue is None or facts.queue.alive:
        return []
    queue = facts.task.queue
    return [reasons.NoWorker(message=f"No live worker takes queue {queue}.", queue=queue)]


# What it waits for among others


def _key(facts: Facts) -> list[AnyReason]:
    key, limit, running = facts.task.concurrency_key, facts.task.concurrency_limit, facts.holders
    if key is None or limit is None or len(running) < limit:
        return []
    named = list(running[:_NAMED])
    more = ", …" if len(running) > _NAMED else ""
    message = (
        f"{_count(len(running), 'running task')} {'holds' if len(running) == 1 else 'hold'} its "
        f"concurrency key {key}, and no more than {limit} may: {', '.join(map(str, named))}{more}."
    )
    return [
        reasons.WaitingForKey(
            message=message, key=key, limit=limit, running=len(running), holders=named
        )
    ]


def _rate(facts: Facts) -> list[AnyReason]:
    rate, ahead, queue = facts.rate, facts.ahead, facts.task.queue
    if rate is None or ahead is None or not (rate.wait_s or ahead.tasks > rate.limit.burst):
        return []
    per_s, next_at = rate.limit.per_s, facts.at + timedelta(seconds=rate.wait_s)
    message = (
        f"Queue {queue} is held to {per_s:g} tasks a second: the next one may go at "
        f"{moment(next_at, facts.at)}, and {_ahead(ahead)} before it."
    )
    return [
        reasons.WaitingForRate(
            message=message, queue=queue, rate=per_s, next_token_at=next_at, ahead=ahead.tasks,
            ahead_exact=ahead.whole,
        )
    ]  # fmt: skip


def _capacity(facts: Facts) -> list[AnyReason]:
    queue, ahead = facts.queue, facts.ahead
    if queue is None or ahead is None:
        return []
    window = line.window(facts.window_floor, queue.concurrency)
    if line.has_room(window, queue.backlog, ahead.tasks + 1):
        return []
    workers = len(queue.alive)
    message = (
        f"{queue.backlog} tasks of queue {facts.task.queue} wait for its {_count(workers, 'worker')} "
        f"already, of at most {window}; {_ahead(ahead)} before it."
    )
    return [
        reasons.WaitingForCapacity(
            message=message, queue=facts.task.queue, window=window, backlog=queue.backlog,
            workers=workers, ahead=ahead.tasks, ahead_exact=ahead.whole,
        )
    ]  # fmt: skip


def _due_now(facts: Facts, due: datetime) -> AnyReason:
    owner, ahead = facts.slot, facts.ahead
    assert owner is not None
    assert owner.id is not None
    assert ahead is not None
    message = (
        f"Nothing holds it: it came due at {moment(due, facts.at)}, and node {owner.id} is about to "
        f"fire it; {_ahead(ahead)} before it."
    )
    return reasons.DueNow(
        message=message, due=due, owner=owner.id, ahead=ahead.tasks, ahead_exact=ahead.whole
    )


# Under way


def _in_stream(facts: Facts, queue: QueueSight) -> AnyReason:
    task, workers = facts.task, len(queue.alive)
    assert task.owner is not None
    assert task.claimed_at is not None
    message = (
        f"Node {task.owner} fired it at {moment(task.claimed_at, facts.at)}; it waits in the stream "
        f"of queue {task.queue}, where {_count(queue.backlog, 'task')} wait for "
        f"{_count(workers, 'live worker')}."
    )
    return reasons.InStream(
        message=message, node=task.owner, since=task.claimed_at, queue=task.queue,
        backlog=queue.backlog, workers=workers,
    )  # fmt: skip


def _at_worker(facts: Facts) -> AnyReason:
    task, queue = facts.task, facts.queue
    worker = task.worker if queue is None else queue.worker
    since = task.started_at
    assert worker is not None
    if since is None:
        assert queue is not None
        since = queue.fetched_at(facts.at)
    known = [] if queue is None else [one for one in queue.workers if one.id == worker]
    silent_s = round(known[0].silent_s, 3) if known else None
    message = f"Worker {worker} has had it since {moment(since, facts.at)}"
    if silent_s is not None:
        message += f"; the worker was last heard of {span(silent_s)} ago"
    if known and known[0].says is None:
        message += " and counts as lost: the task is taken from it within seconds"
    return reasons.Running(message=f"{message}.", worker=worker, since=since, silent_s=silent_s)


def _claimed(facts: Facts) -> AnyReason:
    task = facts.task
    assert task.owner is not None
    assert task.claimed_at is not None
    when = moment(task.claimed_at, facts.at)
    message = f"Node {task.owner} claimed it at {when}"
    if facts.queue is None:
        message += "; only Redis knows where it is now."
    else:
        message += (
            " and it is in no stream now: it is about to be published, or its outcome to be recorded; "
            "if neither, it is published again within seconds."
        )
    return reasons.Claimed(message=message, node=task.owner, since=task.claimed_at)


def _ahead(ahead: Ahead) -> str:
    at_least = "" if ahead.whole else "at least "
    verb = "goes" if ahead.tasks == 1 and ahead.whole else "go"
    return f"{at_least}{_count(ahead.tasks, 'task')} {verb}"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
