"""What the statements of storage/sql/ledger.sql do, on a `Store`: what the recorder writes."""

from datetime import datetime, timedelta
from typing import Any

from simulated.store import Row, Store, statement

_STALE = ("id", "token", "outcome", "worker", "began", "ended", "error", "times")
_OF_A_DAY = 100


@statement
def reject(store: Store, *args: Any) -> list[Row]:
    *columns, day, now = args
    of_day = [row for row in store.rejected.values() if row["day"] == day]
    placed: dict[tuple[Any, ...], Row] = {}
    for place, values in enumerate(zip(*columns, strict=True), start=1):
        said = dict(zip(_STALE, values, strict=True))
        task = store.tasks.get(said["id"]) or store.finished.get(said["id"])
        if task is None or _is_recorded(store, task, said):
            continue
        key = (said["id"], day, said["token"], said["outcome"], said["worker"])
        count = sum(row["task_id"] == said["id"] for row in of_day)
        if key not in store.rejected and count >= _OF_A_DAY:
            key = (said["id"], day, 0, "more", "")
            said |= {"outcome": "more", "began": None, "ended": None, "error": None}
        row = _row(store, task, said, key, now + timedelta(microseconds=place))
        if key in placed:
            placed[key]["times"] += said["times"]
        else:
            placed[key] = row
    for key, row in placed.items():
        if key in store.rejected:
            store.rejected[key]["times"] += row["times"]
        else:
            store.rejected[key] = row
    names = ("task_id", "token", "outcome", "times")
    return [{name: store.rejected[key][name] for name in names} for key in placed]


def _is_recorded(store: Store, task: Row, said: Row) -> bool:
    """The report came twice: it is no stale one."""
    waits_by_it = task["status"] == "pending" and task["version"] == said["token"]
    if said["outcome"] == "snoozed" and waits_by_it:
        return True
    return any(
        run["task_id"] == said["id"] and run["token"] == said["token"]
        and run["outcome"] == said["outcome"] and (run["worker"] or "") == said["worker"]
        for run in store.runs
    )  # fmt: skip


def _row(store: Store, task: Row, said: Row, key: tuple[Any, ...], received_at: datetime) -> Row:
    occurrence = task["occurrence"]
    later = [
        run
        for run in store.runs
        if run["task_id"] == task["id"] and run["token"] >= said["token"]
        and run["outcome"] != "skipped"
    ]  # fmt: skip
    if later and said["outcome"] != "more":
        occurrence = min(later, key=lambda run: run["token"])["occurrence"]
    task_id, day, token, outcome, worker = key
    return {
        "task_id": task_id, "token": token, "outcome": outcome, "worker": worker, "day": day,
        "received_at": received_at, "type": task["type"], "queue": task["queue"],
        "occurrence": occurrence, "started_at": said["began"], "finished_at": said["ended"],
        "error": said["error"], "times": said["times"],
    }  # fmt: skip
