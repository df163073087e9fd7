"""What the statements of storage/sql/courses.sql do, on a `Store`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from simulated.statements import pick, record_skipped
from simulated.store import Row, Store, statement

_COURSE = (
    "id", "version", "status", "paused", "created_at", "schedule", "overrun", "misfire_grace",
    "occurrence", "next_run_at", "following", "done_until", "runs_done", "begun", "skip_until",
    "skip_reason", "zone_data",
)  # fmt: skip
_OF_LAST_RUN = ("started_at", "worker", "result")
_ASKED = (
    "id", "version", "occurrence", "next_run_at", "following", "done_until", "skip_until",
    "skip_reason", "zone_data",
)  # fmt: skip
_MOVED = (
    "id", "version", "slot", "next_run_at", "priority", "queue", "paused", "concurrency_key",
    "fairness_key",
)  # fmt: skip


@statement
def courses(store: Store, ids: list[UUID]) -> list[Row]:
    rows = [store.tasks[i] for i in ids if i in store.tasks]
    return [pick(row, _COURSE) | {"completed": row["completion"] is not None} for row in rows]


@statement
def advance(store: Store, *args: Any) -> list[Row]:
    *columns, skipped_ids, skipped_at, skipped_why, resume, now = args
    skipped = list(zip(skipped_ids, skipped_at, skipped_why, strict=True))
    found = []
    for values in zip(*columns, strict=True):
        asked = dict(zip(_ASKED, values, strict=True))
        row = store.tasks.get(asked["id"])
        if row is None or row["version"] != asked["version"] or row["status"] != "pending":
            continue
        version = row["version"] + 1
        if asked["next_run_at"] is None:
            store.finish(
                row, status="completed", version=version, updated_at=now, finished_at=now,
                paused=False, error=row["error"], owner=None, **_last_run(store, row["id"]),
            )  # fmt: skip
            answer = {**dict.fromkeys((*_MOVED, "slot_owner")), "id": row["id"]}
        else:
            paused = row["paused"] and not resume
            changed = {**row, **asked, "version": version, "paused": paused, "updated_at": now}
            if resume:
                changed |= {"paused_by": None, "paused_at": None}
            store.put(changed)
            owner = store.slots[row["slot"]]["owner"]
            answer = pick(changed, _MOVED) | {"slot_owner": owner}
        record_skipped(store, row, version, skipped, now)
        found.append(answer)
    return found


def _last_run(store: Store, task_id: UUID) -> Row:
    ran = [r for r in store.runs if r["task_id"] == task_id and r["outcome"] != "skipped"]
    if not ran:
        return {}
    return pick(max(ran, key=lambda r: (r["token"], r["recorded_at"])), _OF_LAST_RUN)


@statement
def pause(store: Store, task_id: UUID, now: datetime, paused: bool, who: str | None) -> list[Row]:
    row = store.tasks.get(task_id)
    if row is None or row["paused"] == paused or (row["status"] == "pending" and not paused):
        return []
    version = row["version"] + (row["status"] == "pending")
    by, at = (who, now) if paused else (None, None)
    store.put(
        {**row, "paused": paused, "updated_at": now, "version": version, "paused_by": by,
         "paused_at": at}
    )  # fmt: skip
    return [{"id": task_id}]


@statement
def zone_outdated(store: Store, owner: str, version: str, limit: int) -> list[Row]:
    found = [
        row
        for row in store.tasks.values()
        if row["zone_data"] is not None and row["zone_data"] < version and not row["begun"]
        and row["status"] == "pending" and store.slots[row["slot"]]["owner"] == owner
    ]  # fmt: skip
    found.sort(key=lambda row: (row["zone_data"], row["id"]))
    return [{"id": row["id"]} for row in found[:limit]]
