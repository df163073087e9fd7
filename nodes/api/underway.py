"""The reasons of a task that was claimed: where it is now. Part of judging."""

from duly.nodes.api import reasons
from duly.nodes.api.facts import Facts
from duly.nodes.api.moments import count, moment, span
from duly.nodes.api.reasons import AnyReason
from duly.storage.sight import QueueSight


def in_stream(facts: Facts, queue: QueueSight) -> AnyReason:
    task, workers = facts.task, len(queue.alive)
    assert task.owner is not None
    assert task.claimed_at is not None
    message = (
        f"Node {task.owner} fired it at {moment(task.claimed_at, facts.at)}; it waits in the stream "
        f"of queue {task.queue}, where {count(queue.backlog, 'task')} wait for "
        f"{count(workers, 'live worker')}."
    )
    return reasons.InStream(
        message=message, node=task.owner, since=task.claimed_at, queue=task.queue,
        backlog=queue.backlog, workers=workers,
    )  # fmt: skip


def at_worker(facts: Facts) -> AnyReason:
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
    told = facts.progress
    if told is not None:
        message += f"; it says that {told.share:.0%} is done"
    return reasons.Running(
        message=f"{message}.", worker=worker, since=since, silent_s=silent_s,
        progress=told.share if told else None, progress_text=told.text if told else None,
    )  # fmt: skip


def claimed(facts: Facts) -> AnyReason:
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
