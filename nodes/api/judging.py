"""From facts to reasons: why a task has not run. Pure; the facts are gathered elsewhere (explain).

What holds a task now comes first. Of several that hold it, first what a person did to the task itself,
then its time, then what keeps every task of its slot or queue, then what it waits for among others.
"""

from datetime import datetime, timedelta
from uuid import UUID

from duly.actors import line
from duly.nodes.api import reasons
from duly.nodes.api.facts import Facts
from duly.nodes.api.moments import count, moment
from duly.nodes.api.reasons import AnyReason
from duly.nodes.api.underway import at_worker, claimed, in_stream
from duly.storage.explain import Ahead

_NAMED = 10  # of the tasks that hold a key


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
    if facts.task.waits_for:
        return [*found, _waits(facts, facts.task.waits_for)]
    is_due = due <= facts.at
    if not is_due:
        found.append(_not_due(facts, due))
    found += [*_redis(facts), *_slot(facts), *_queue_paused(facts), *_no_worker(facts)]
    if is_due:
        found += [*_key(facts), *_in_flight(facts), *_rate(facts), *_capacity(facts)]
    return found or [_due_now(facts, due)]


def _running(facts: Facts) -> list[AnyReason]:
    task, queue = facts.task, facts.queue
    assert task.owner is not None
    assert task.claimed_at is not None
    if queue is None:
        known = task.worker is not None and task.started_at is not None  # its start was confirmed
        found = [*_redis(facts), at_worker(facts) if known else claimed(facts)]
    elif queue.worker is not None:
        found = [at_worker(facts)]
    elif queue.in_stream:
        found = [*_no_worker(facts), in_stream(facts, queue)]
    else:
        found = [*_redis(facts), *_slot(facts), claimed(facts)]
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


def _waits(facts: Facts, ids: list[UUID]) -> AnyReason:
    named = {str(one): facts.waited_for[one] for one in ids if one in facts.waited_for}
    said = ", ".join(f"task {one} ({status})" for one, status in named.items())
    more = f" and {len(ids) - len(named)} more" if named and len(named) < len(ids) else ""
    message = (
        f"It waits for {said}{more} to complete."
        if named
        else "It waits for other tasks to complete."
    )
    return reasons.WaitingForTasks(message=message, tasks=named, left=len(ids))


def _not_due(facts: Facts, due: datetime) -> AnyReason:
    task, when = facts.task, moment(due, facts.at)
    if task.given_back is not None:
        message = f"A worker gave it back: {task.given_back}; it comes again at {when}."
        return reasons.GivenBack(message=message, until=due, detail=task.given_back)
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
        f"{count(len(running), 'running task')} {'holds' if len(running) == 1 else 'hold'} its "
        f"concurrency key {key}, and no more than {limit} may: {', '.join(map(str, named))}{more}."
    )
    return [
        reasons.WaitingForKey(
            message=message, key=key, limit=limit, running=len(running), holders=named
        )
    ]


def _in_flight(facts: Facts) -> list[AnyReason]:
    queue, most, running = facts.task.queue, facts.task.max_in_flight, facts.in_flight
    if most is None or running is None or running < most:
        return []
    message = f"{count(running, 'task')} of queue {queue} run, and no more than {most} may."
    return [
        reasons.WaitingForInFlight(
            message=message, queue=queue, max_in_flight=most, running=running
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
        f"{queue.backlog} tasks of queue {facts.task.queue} wait for its {count(workers, 'worker')} "
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
    failing = list(facts.failing)
    if failing:
        message += f" The node says that its work with {' and '.join(failing)} fails."
    return reasons.DueNow(
        message=message,
        due=due,
        owner=owner.id,
        failing=failing,
        ahead=ahead.tasks,
        ahead_exact=ahead.whole,
    )


def _ahead(ahead: Ahead) -> str:
    at_least = "" if ahead.whole else "at least "
    verb = "goes" if ahead.tasks == 1 and ahead.whole else "go"
    return f"{at_least}{count(ahead.tasks, 'task')} {verb}"
