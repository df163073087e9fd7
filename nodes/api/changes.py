"""A checked body becomes a change of a pending task."""

from datetime import timedelta

from msgspec import UNSET

from duly.nodes.api.checker import Checker
from duly.nodes.api.submissions import backoff_text
from duly.nodes.api.wire import TaskPatch
from duly.storage.tasks import Change
from duly.wheel.durations import from_us


def change(body: TaskPatch, now_us: int, payload_limit: int) -> Change:
    """Raises `Problem` 422 naming each wrong field, also when there is nothing to change."""
    checker = Checker()
    due = checker.due(
        None if body.run_at is UNSET else body.run_at,
        None if body.delay is UNSET else body.delay,
        from_us(now_us),
    )
    grace = body.misfire_grace
    key, limit, fairness = body.concurrency_key, body.concurrency_limit, body.fairness_key
    if limit is not UNSET and not isinstance(key, str):
        checker.wrong("concurrency_limit", "goes with a concurrency_key")
    schedule = None if body.schedule is UNSET else checker.schedule(body.schedule, now_us)
    result = Change(
        due=due,
        payload=None
        if body.payload is UNSET
        else checker.payload(bytes(body.payload), payload_limit),
        priority=None if body.priority is UNSET else body.priority,
        max_retries=None if body.max_retries is UNSET else body.max_retries,
        backoff=None if body.backoff is UNSET else backoff_text(body.backoff),
        timeout=None if body.timeout is UNSET else checker.timeout(body.timeout),
        tags=None if body.tags is UNSET else checker.tags(body.tags),
        set_misfire_grace=grace is not UNSET,
        misfire_grace=None
        if grace is UNSET or grace is None
        else checker.duration("misfire_grace", grace),
        schedule=None if schedule is None else schedule.text(),
        interval=None
        if schedule is None or schedule.every_us is None
        else timedelta(microseconds=schedule.every_us),
        overrun=None if body.overrun is UNSET else body.overrun,
        set_concurrency_key=key is not UNSET,
        concurrency_key=None if key is UNSET else checker.key("concurrency_key", key),
        concurrency_limit=None if limit is UNSET else limit,
        set_fairness_key=fairness is not UNSET,
        fairness_key=None if fairness is UNSET else checker.key("fairness_key", fairness),
    )
    if not checker.errors and result == Change():
        checker.wrong("body", "names nothing to change")
    checker.raise_if_wrong()
    later = {"schedule", "interval", "overrun", "misfire_grace", "set_misfire_grace"}
    named = {name for name, value in result._asdict().items() if value not in (None, False)}
    return result._replace(may_run=named <= later)
