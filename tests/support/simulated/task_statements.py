"""What the statements of storage/sql/tasks.sql do, on a `Store`: those that clients need."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from simulated.follow_statements import FRESH, all_waits_seen, let_waiting_go
from simulated.statements import pick, record_skipped
from simulated.store import Row, Store, statement

_TASK = (
    "id", "type", "queue", "payload", "status", "paused", "next_run_at", "occurrence", "slot",
    "owner", "version", "retry_count", "max_retries", "backoff", "timeout", "schedule", "overrun",
    "misfire_grace", "on_lost", "priority", "idempotency_key", "tags", "concurrency_key",
    "concurrency_limit", "fairness_key", "region", "name", "created_at", "updated_at", "started_at", "finished_at", "worker", "result", "error",
    "on_success", "on_failure", "parent", "after", "waits_for",
)  # fmt: skip
_RUN = (
    "task_id", "token", "occurrence", "attempt", "outcome", "worker", "started_at", "finished_at",
    "recorded_at", "error", "result", "follow_up",
)  # fmt: skip
_ASKED = (
    "id", "type", "queue", "payload", "due", "max_retries", "backoff", "timeout", "misfire_grace",
    "on_lost", "priority", "key", "fingerprint", "tags", "own_id", "created_at", "occurrence",
    "schedule", "interval", "overrun", "following", "zone_data", "concurrency_key",
    "concurrency_limit", "fairness_key", "traceparent", "region", "name", "on_success",
    "on_failure", "after",
)  # fmt: skip
_PLAIN = (
    "id", "type", "queue", "payload", "due", "max_retries", "backoff", "timeout", "priority", "tags",
    "traceparent", "created_at",
)  # fmt: skip
_UNASKED: Row = dict.fromkeys(_ASKED) | {"on_lost": "retry", "overrun": "skip"}


@statement
def submit(store: Store, *args: Any) -> list[Row]:
    *columns, now, keys_until = args
    asked = _asked(_ASKED, columns)
    named = [one["key"] for one in asked if one["key"] is not None]
    if len(named) != len(set(named)):
        raise AssertionError("ON CONFLICT DO UPDATE cannot affect a row a second time")
    finished = set(store.finished)
    answers = []
    for one in sorted(asked, key=lambda one: (one["name"] or "", one["id"])):
        first = _first_of_key(store, one, now, keys_until)
        known = first is not None and (
            first["task_id"] != one["id"] or first["expires_at"] != keys_until
        )
        taken = one["id"] in store.tasks or (one["own_id"] and one["id"] in finished)
        taken = taken or _has_name(store, one["name"])
        row = None
        if not known and not taken:
            row = _new_row(store, one)
            store.put(row)
        answers.append({
            "id": one["id"],
            "slot": row and row["slot"],
            "created_at": row and row["created_at"],
            "owner": row and store.slots[row["slot"]]["owner"],
            "known": known,
            "first_id": first and first["task_id"],
            "first_fingerprint": first and first["fingerprint"],
        })  # fmt: skip
    return answers


def _has_name(store: Store, name: str | None) -> bool:
    return name is not None and any(row["name"] == name for row in store.tasks.values())


@statement
def named(store: Store, names: list[str]) -> list[Row]:
    return [pick(row, _TASK) for row in store.tasks.values() if row["name"] in names]


@statement
def submit_plain(store: Store, *args: Any) -> list[Row]:
    *columns, wake_until = args
    # Of values that are all equal one is sent, but of those that may be null.
    spread = [c * len(columns[0]) if len(c) == 1 else c for c in columns]
    answers = []
    for one in _asked(_PLAIN, spread):
        if one["id"] in store.tasks:
            raise asyncpg.UniqueViolationError
        row = _new_row(store, _UNASKED | one | {"occurrence": one["due"]})
        store.put(row)
        is_soon = wake_until is None or one["due"] < wake_until
        owner = store.slots[row["slot"]]["owner"] if is_soon else None
        answers.append({"id": one["id"], "slot": row["slot"], "owner": owner})
    return answers


def _asked(names: Sequence[str], columns: list[Any]) -> list[Row]:
    """Rows; a column of nulls came empty."""
    rows = zip(*(column or [None] * len(columns[0]) for column in columns), strict=True)
    return [dict(zip(names, values, strict=True)) for values in rows]


def _first_of_key(store: Store, one: Row, now: datetime, until: datetime) -> Row | None:
    if one["key"] is None:
        return None
    first = store.keys.get(one["key"])
    if first is None or first["expires_at"] <= now:
        fresh = {"task_id": one["id"], "fingerprint": one["fingerprint"], "expires_at": until}
        store.keys[one["key"]] = fresh
        return fresh
    return first


def _new_row(store: Store, one: Row) -> Row:
    kept = (
        "id", "type", "queue", "payload", "max_retries", "backoff", "timeout", "misfire_grace",
        "on_lost", "priority", "tags", "created_at", "occurrence", "schedule", "interval", "overrun",
        "following", "zone_data", "concurrency_key", "concurrency_limit", "fairness_key",
        "traceparent", "region", "name", "on_success", "on_failure",
    )  # fmt: skip
    after = None if one["after"] is None else [UUID(text) for text in json.loads(one["after"])]
    return {
        **FRESH, **pick(one, kept), "slot": store.slot_of(one["id"]), "next_run_at": one["due"],
        "idempotency_key": one["key"], "updated_at": one["created_at"], "after": after,
        "waits_for": after and sorted(set(after)),
    }  # fmt: skip


@statement
def stored(store: Store, ids: list[UUID], times: list[datetime]) -> list[Row]:
    found = []
    for table, is_waiting in ((store.tasks, True), (store.finished, False)):
        pairs = zip(ids, times, strict=True)
        for row, at in ((table[i], at) for i, at in pairs if i in table):
            if row["created_at"] == at:
                owner = store.slots[row["slot"]]["owner"] if is_waiting else None
                found.append(pick(row, ("id", "slot", "created_at")) | {"owner": owner})
    return found


@statement
def withdraw_finished(store: Store, ids: list[UUID]) -> list[Row]:
    both = [i for i in ids if i in store.tasks and i in store.finished]
    for task_id in both:
        store.remove(task_id)
    return [{"id": task_id} for task_id in both]


@statement
def queues(store: Store, ids: list[UUID]) -> list[Row]:
    tables = (store.tasks, store.finished)
    return [pick(table[i], ("id", "queue")) for table in tables for i in ids if i in table]


@statement
def get(store: Store, ids: list[UUID]) -> list[Row]:
    found = [pick(store.tasks[i], _TASK) for i in ids if i in store.tasks]
    found += [pick({**store.finished[i], "next_run_at": None}, _TASK)
              for i in ids if i in store.finished]  # fmt: skip
    return found


@statement
def cancel(
    store: Store, task_id: UUID, now: datetime, version: Any, status: Any, schedule: Any,
    done_until: Any, skipped_at: list[Any], skipped_why: list[Any], *only: Any,
) -> list[Row]:  # fmt: skip
    row = store.tasks.get(task_id)
    if row is None or not _is_so(row, *only):
        return []
    seen = (version, status, schedule, done_until)
    now_is = tuple(row[name] for name in ("version", "status", "schedule", "done_until"))
    if row["schedule"] is not None and now_is != seen:
        return []
    if not all_waits_seen(store, row):
        return []
    return cancel_row(store, row, now, skipped_at, skipped_why)


@statement
def is_so(store: Store, task_id: UUID, *only: Any) -> list[Row]:
    row = store.tasks.get(task_id)
    return [] if row is None or not _is_so(row, *only) else [{"id": task_id}]


def _is_so(row: Row, status: Any, tag: Any, before: Any, after: Any, paused: Any) -> bool:
    return (
        status in (None, row["status"])
        and (tag is None or json.loads(tag).items() <= json.loads(row["tags"]).items())
        and (before is None or row["next_run_at"] < before)
        and (after is None or row["next_run_at"] >= after)
        and paused in (None, row["paused"])
    )


def cancel_row(
    store: Store, row: Row, now: datetime, skipped_at: Sequence[Any], skipped_why: Sequence[Any]
) -> list[Row]:
    """A cancel, once it is known that it may be."""
    done = store.finish(
        row, status="cancelled", version=row["version"] + 1, updated_at=now, finished_at=now,
        started_at=row["started_at"], worker=row["worker"], error=row["error"],
    )  # fmt: skip
    running = row["status"] == "running"
    store.record(
        row, row["version"] + (not running), row["retry_count"] + 1, "cancelled",
        verdict="cancelled", worker=row["worker"], started_at=row["started_at"],
        finished_at=now if running else None, recorded_at=now,
    )  # fmt: skip
    skipped = [(row["id"], *one) for one in zip(skipped_at, skipped_why, strict=True)]
    record_skipped(store, row, row["version"] + 1, skipped, now)
    let_waiting_go(store, [(row, "cancelled")], now)
    return [cancelled(done, row)]


def cancelled(done: Row, before: Row) -> Row:
    """What a cancel answers."""
    answer = pick({**done, "next_run_at": None}, _TASK)
    return answer | {"token": before["version"]}


@statement
def patch(
    store: Store, task_id: UUID, now: datetime, if_version: int | None, due: Any, payload: Any,
    priority: Any, max_retries: Any, backoff: Any, timeout: Any, tags: Any, set_grace: bool,
    grace: Any, schedule: Any, interval: Any, overrun: Any, may_run: bool, at_version: Any,
    at_status: Any, next_one: Any, next_run_at: Any, following: Any, done_until: Any,
    zone_data: Any, skipped_at: list[Any], skipped_why: list[Any], seen_schedule: Any,
    seen_done_until: Any, recount: int, set_key: bool, key: Any, limit: Any, set_fairness: bool,
    fairness: Any, wait_no_more: bool,
) -> list[Row]:  # fmt: skip
    row = store.tasks.get(task_id)
    if row is None:
        return []
    owner = {"slot_owner": store.slots[row["slot"]]["owner"]}
    open_to = row["status"] == "pending" or (row["schedule"] is not None and may_run)
    seen = (at_version, at_status, seen_schedule, seen_done_until)
    now_is = tuple(row[name] for name in ("version", "status", "schedule", "done_until"))
    as_read = at_version is None or now_is == seen
    if not open_to or not as_read or (if_version is not None and row["version"] != if_version):
        return [pick(row, _TASK) | {"was_changed": False} | owner]
    given = {
        "payload": payload, "priority": priority, "max_retries": max_retries, "backoff": backoff,
        "timeout": timeout, "tags": tags, "schedule": schedule, "overrun": overrun,
        "done_until": done_until, "occurrence": next_one, "next_run_at": next_run_at,
    }  # fmt: skip
    changed = row | {name: value for name, value in given.items() if value is not None}
    is_waiting = row["waits_for"] is not None
    if is_waiting and not wait_no_more:
        changed["next_run_at"] = row["next_run_at"]
    if wait_no_more:
        changed["waits_for"] = None
    if due is not None and is_waiting:
        changed |= {"occurrence": next_one or due}
        if wait_no_more:
            changed["next_run_at"] = due
    elif due is not None:
        changed["next_run_at"] = due
        has_run = any(run["task_id"] == task_id for run in store.runs)
        is_fresh = row["retry_count"] == 0 and row["occurrence"] == row["next_run_at"]
        if row["schedule"] is None and is_fresh and not has_run and next_one is None:
            changed["occurrence"] = due
    if next_one is not None:
        changed |= {
            "following": following, "skip_until": None, "skip_reason": None, "zone_data": zone_data,
        }  # fmt: skip
    if due is not None and row["skip_until"] is None:
        changed["following"] = None
    if row["schedule"] is None:
        changed["following"] = row["following"]
    if schedule is not None:
        changed["interval"] = interval
    changed["runs_done"] = row["runs_done"] + recount
    if set_grace:
        changed["misfire_grace"] = grace
    if set_key:
        changed["concurrency_key"] = key
        before = row["concurrency_limit"]
        changed["concurrency_limit"] = None if key is None else limit or before or 1
    if set_fairness:
        changed["fairness_key"] = fairness
    version = row["version"] + (row["status"] == "pending")
    changed |= {"version": version, "updated_at": now}
    store.put(changed)
    skipped = [(task_id, *one) for one in zip(skipped_at, skipped_why, strict=True)]
    record_skipped(store, changed, version, skipped, now)
    return [pick(changed, _TASK) | {"was_changed": True} | owner]


@statement
def retry(store: Store, task_id: UUID, now: datetime) -> list[Row]:
    done = store.finished.get(task_id)
    if done is None or done["status"] != "failed":
        return []
    if _has_name(store, done["name"]):
        raise asyncpg.UniqueViolationError
    del store.finished[task_id]
    for run in store.runs:
        if run["task_id"] == task_id and run["occurrence"] == done["occurrence"]:
            run["verdict"] = None
    kept = {name: done[name] for name in done if name not in FRESH} | {"error": done["error"]}
    row = {
        **FRESH, **kept, "name": done["name"], "schedule": done["schedule"], "overrun": done["overrun"],
        "interval": done["interval"],
        **pick(done, ("region", "on_success", "on_failure", "parent", "after")),
        "next_run_at": now, "version": done["version"] + 1, "updated_at": now,
    }  # fmt: skip
    store.put(row)
    owner = {"slot_owner": store.slots[row["slot"]]["owner"]}
    return [pick(row, _TASK) | {"was_changed": True} | owner]


@statement
def waiting(store: Store, parent: UUID, after: UUID | None, limit: int) -> list[Row]:
    found = sorted((task for one, task in store.waits if one == parent), reverse=True)
    rows = [store.tasks[i] for i in found if i in store.tasks and (after is None or i < after)]
    return [pick(row, _TASK) for row in rows[:limit]]


@statement
def runs(store: Store, task_id: UUID, token: Any, recorded_at: Any, limit: int) -> list[Row]:
    found = [
        run
        for run in store.runs
        if run["task_id"] == task_id and (run["outcome"] != "cancelled" or run["finished_at"])
    ]
    assert token is None, "only the first page is simulated"
    found.sort(key=lambda run: (run["token"], run["recorded_at"]), reverse=True)
    return [pick(run, _RUN) for run in found[:limit]]
