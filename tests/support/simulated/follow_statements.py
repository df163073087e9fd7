"""What follows the end of a task, on a `Store`: follow-ups, and tasks that wait until others have completed."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from simulated.store import Row, Store, statement

WAITS_AGAIN = (
    "id", "version", "slot", "next_run_at", "priority", "queue", "concurrency_key", "fairness_key",
)  # fmt: skip
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
FRESH: Row = {
    "status": "pending", "paused": False, "owner": None, "version": 0, "retry_count": 0,
    "schedule": None, "overrun": "skip", "claimed_at": None, "started_at": None, "start_id": None,
    "worker": None, "error": None, "finished_at": None, "result": None, "interval": None,
    "runs_done": 0, "begun": False, "done_until": None, "following": None, "skip_until": None,
    "skip_reason": None, "zone_data": None, "paused_by": None, "paused_at": None,
    "traceparent": None, "region": None, "name": None, "completion": None, "on_success": None, "on_failure": None, "parent": None,
    "after": None, "waits_for": None, "awaited": None,
}  # fmt: skip
"""A task that was submitted just now, as far as its submission says nothing else."""


def as_jsonb(value: Any) -> str:
    """As PostgreSQL writes it: shorter keys first."""
    return json.dumps(_in_order(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name))
        return {name: _in_order(value[name]) for name in names}
    return [_in_order(one) for one in value] if isinstance(value, list) else value


def all_waits_seen(store: Store, row: Row) -> bool:
    """Whether as many wait for it as its row says."""
    seen = sum(parent == row["id"] for parent, _ in store.waits)
    return row["awaited"] is None or bool(row["awaited"] <= seen)


def follow(store: Store, row: Row, said: Row, at: datetime) -> Row:
    """The task that follows an outcome of `row`; `said` holds follow_id, token, status, occurrence, result, error."""
    spec = json.loads(row["on_success" if said["status"] == "completed" else "on_failure"])
    parent = {
        "id": str(row["id"]), "token": said["token"], "occurrence": _shown(said["occurrence"]),
        "status": said["status"], "result": json.loads(said["result"] or "null"),
        "error": json.loads(said["error"] or "null"),
    }  # fmt: skip
    due = at + timedelta(seconds=spec["delay"])
    new = {
        **FRESH, "id": said["follow_id"], "slot": store.slot_of(said["follow_id"]),
        "type": spec["type"], "queue": spec["queue"], "payload": as_jsonb(spec["payload"]),
        "next_run_at": due, "occurrence": due, "max_retries": spec["max_retries"],
        "backoff": _text(spec.get("backoff")), "timeout": float(spec["timeout"]),
        "misfire_grace": _float(spec.get("misfire_grace")), "on_lost": spec["on_lost"],
        "priority": spec["priority"], "tags": as_jsonb(spec["tags"]),
        "concurrency_key": spec.get("concurrency_key"),
        "concurrency_limit": spec.get("concurrency_limit"), "fairness_key": spec.get("fairness_key"),
        "on_success": _text(spec.get("on_success")), "on_failure": _text(spec.get("on_failure")),
        "parent": as_jsonb(parent), "traceparent": row["traceparent"], "idempotency_key": None,
        "created_at": at, "updated_at": at,
    }  # fmt: skip
    store.put(new)
    return new


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> str | None:
    return None if value is None else as_jsonb(value)


def _shown(at: datetime) -> str:
    head, _, fraction = at.astimezone(UTC).isoformat().removesuffix("+00:00").partition(".")
    fraction = fraction.rstrip("0")
    return f"{head}.{fraction}+00:00" if fraction else f"{head}+00:00"


def let_waiting_go(store: Store, over: Sequence[tuple[Row, str]], at: datetime) -> list[Row]:
    """What waits for these tasks, which ended with these statuses; answers what now waits for nothing."""
    ended = {row["id"]: status for row, status in over if row["awaited"] is not None}
    hit: dict[UUID, list[UUID]] = {}
    for parent, task_id in sorted(store.waits):
        if parent in ended:
            store.waits.discard((parent, task_id))
            hit.setdefault(task_id, []).append(parent)
    free = []
    for task_id in sorted(hit):
        row = store.tasks.get(task_id)
        if row is None or row["waits_for"] is None or row["status"] != "pending":
            continue
        changed = _let_go(row, hit[task_id], ended, at)
        store.put(changed)
        if changed["waits_for"] is None and not changed["paused"]:
            free.append(changed)
    return free


def _let_go(row: Row, parents: list[UUID], ended: dict[UUID, str], at: datetime) -> Row:
    bad = [parent for parent in parents if ended[parent] != "completed"]
    left = [one for one in row["waits_for"] if one not in parents]
    if bad:
        status = ended[bad[0]]
        what = "failed" if status == "failed" else "was cancelled"
        said = {
            "type": "after", "message": f"a task that it waited for {what}", "task": str(bad[0]),
            "status": status,
        }  # fmt: skip
        changes: Row = {
            "waits_for": None, "next_run_at": at, "following": _NEVER, "error": as_jsonb(said),
            "paused": False,
        }  # fmt: skip
    elif left:
        return {**row, "waits_for": left, "updated_at": at}
    else:
        due = max(row["occurrence"], at)
        changes = {"waits_for": None, "next_run_at": due, "occurrence": due}
    return {**row, **changes, "version": row["version"] + 1, "updated_at": at}


def told(store: Store, row: Row) -> Row:
    """A task that waits because another one ended, as the statements answer it."""
    owner = store.slots[row["slot"]]["owner"]
    return {name: row[name] for name in WAITS_AGAIN} | {"slot_owner": owner}


# Submissions


@statement
def note_waits(store: Store, ids: list[UUID], numbers: list[int]) -> list[Row]:
    found = []
    for task_id, number in zip(ids, numbers, strict=True):
        row = store.tasks.get(task_id)
        if row is not None and row["schedule"] is None:
            store.put({**row, "awaited": (row["awaited"] or 0) + number})
            found.append({"id": task_id})
    return found


@statement
def ends_of(store: Store, ids: list[UUID]) -> list[Row]:
    found = [{"id": i, "status": store.finished[i]["status"]} for i in ids if i in store.finished]
    return found + [
        {"id": i, "status": None}
        for i in ids
        if i in store.tasks and store.tasks[i]["schedule"] is not None
    ]


@statement
def add_waits(store: Store, parents: list[UUID], ids: list[UUID]) -> list[Row]:
    store.waits |= set(zip(parents, ids, strict=True))
    return []


@statement
def ended_before(store: Store, ids: list[UUID], done: list[UUID]) -> list[Row]:
    found = []
    for row in [store.tasks[i] for i in ids if i in store.tasks]:
        if not set(row["waits_for"] or ()) & set(done):
            continue
        left = [one for one in row["waits_for"] if one not in done]
        due = row["next_run_at"] if left else row["occurrence"]
        store.put({**row, "waits_for": left or None, "next_run_at": due})
        found.append({
            "id": row["id"], "slot": row["slot"], "next_run_at": due, "waits_for": left or None,
        })  # fmt: skip
    return found
