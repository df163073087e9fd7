"""What the statements of storage/sql/claims.sql, slots.sql and upkeep.sql do, on a `Store`."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice, zip_longest
from operator import itemgetter
from typing import Any
from uuid import UUID

from swept import Found, swept

from duly.storage.slots import PRIORITY
from simulated.follow_statements import (
    WAITS_AGAIN,
    all_waits_seen,
    follow,
    let_waiting_go,
    told,
)
from simulated.store import Row, Store, statement

_CLAIMED = (
    "id", "version", "type", "queue", "occurrence", "retry_count", "timeout", "on_lost", "payload",
    "traceparent",
)  # fmt: skip
_READ_BACK = (*_CLAIMED, "parent")
_DUE = (
    "id", "slot", "next_run_at", "version", "priority", "queue", "concurrency_key", "fairness_key",
)  # fmt: skip


def pick(row: Row, names: Sequence[str]) -> Row:
    """These columns, in this order."""
    return {name: row[name] for name in names}


def _too_late(row: Row, now: datetime) -> bool:
    grace = row["misfire_grace"]
    return grace is not None and (now - row["next_run_at"]).total_seconds() > grace


# claims.sql


@statement
def claim(
    store: Store, ids: list[UUID], versions: list[int], owner: str, slots: list[int],
    epochs: list[int], now: datetime, inline_bytes: int,
) -> list[Row]:  # fmt: skip
    owned = all(store.slots[s]["epoch"] == e for s, e in zip(slots, epochs, strict=True))
    return claim_rows(store, ids, versions, owner, slots, epochs, now, inline_bytes, owned)


def claim_rows(
    store: Store, ids: list[UUID], versions: Sequence[int | None], owner: str, slots: list[int],
    epochs: list[int], now: datetime, inline_bytes: int, owned: bool,
) -> list[Row]:  # fmt: skip
    """The claim, once it is known whether the slots are owned; version None: any."""
    found = []
    for task_id, version in zip(ids, versions, strict=True) if owned else ():
        row = store.tasks.get(task_id)
        if row is None or row["status"] != "pending" or row["paused"]:
            continue
        if version is not None and row["version"] != version:
            continue
        if not row["begun"] and _too_late(row, now):
            continue
        if row["following"] is not None and row["following"] <= now:
            continue
        changed = {
            **row, "status": "running", "version": max(row["version"], store.token_base) + 1, "owner": owner,
            "claimed_at": now, "updated_at": now, "started_at": None, "start_id": None,
            "worker": None,
        }  # fmt: skip
        if store.watcher is not None:
            store.watcher.claimed_under(row["slot"], epochs[slots.index(row["slot"])], owner)
        store.put(changed)
        answer = pick(changed, _CLAIMED)
        if row["parent"] is not None or len(answer["payload"].encode()) > inline_bytes:
            answer["payload"] = None
        found.append({"owned": owned, **answer})
    return found or [{"owned": owned, **dict.fromkeys(_CLAIMED)}]


@statement
def claim_in_turn(
    store: Store, ids: list[UUID], versions: list[int], owner: str, slots: list[int],
    epochs: list[int], now: datetime, inline_bytes: int, keys: list[str | None], queue: str | None,
) -> list[Row]:  # fmt: skip
    running = holders(store)
    limit = None if queue is None else store.queues.get(queue, {}).get("max_in_flight")
    room = math.inf if limit is None else limit - in_flight(store, queue)[0]["count"]
    chosen: list[tuple[UUID, int]] = []
    found: list[Row] = []
    for task_id, version, key in zip(ids, versions, keys, strict=True):
        row = store.tasks.get(task_id)
        if row is None or row["status"] != "pending" or row["paused"]:
            continue
        if row["version"] != version or row["concurrency_key"] != key:
            continue
        key_is_full = key is not None and running[key] >= (row["concurrency_limit"] or 1)
        if key_is_full or room <= 0:
            held = "full" if key_is_full else "queue_full"
            full = {"owned": True, "held_id": task_id, "held": held}
            found.append(dict.fromkeys(("owned", *_CLAIMED)) | full)
        else:
            room -= 1
            running[key] += key is not None
            chosen.append((task_id, version))
    some = [one[0] for one in chosen], [one[1] for one in chosen]
    rows = claim(store, *some, owner, slots, epochs, now, inline_bytes) if chosen else []
    return found + [row | {"held_id": None, "held": None} for row in rows]


def holders(store: Store) -> Counter[str | None]:
    """How many tasks run with each key."""
    rows = (row for row in store.tasks.values() if row["status"] == "running")
    return Counter(row["concurrency_key"] for row in rows if row["concurrency_key"] is not None)


@statement
def in_flight(store: Store, queue: str | None) -> list[Row]:
    rows = (row for row in store.tasks.values() if row["status"] == "running")
    return [{"count": sum(row["queue"] == queue for row in rows)}]


@statement
def key_holders(store: Store, task_id: UUID, limit: int) -> list[Row]:
    key = store.tasks[task_id]["concurrency_key"] if task_id in store.tasks else None
    found = [
        row for row in store.tasks.values()
        if row["status"] == "running" and key is not None and row["concurrency_key"] == key
    ]  # fmt: skip
    found.sort(key=lambda row: (row["claimed_at"], row["id"]))
    return [{"id": row["id"]} for row in found[:limit]]


@statement
def payloads(store: Store, ids: list[UUID]) -> list[Row]:
    return [pick(store.tasks[i], ("id", "payload", "parent")) for i in ids if i in store.tasks]


def running_rows(store: Store, ids: list[UUID], tokens: list[int]) -> list[Row]:
    """Those that run under exactly these tokens."""
    rows = [(store.tasks.get(i), t) for i, t in zip(ids, tokens, strict=True)]
    return [r for r, t in rows if r is not None and r["version"] == t and r["status"] == "running"]


@statement
def claimed(
    store: Store, ids: list[UUID], versions: list[int], owner: str, now: datetime
) -> list[Row]:
    rows = [(store.tasks.get(i), v) for i, v in zip(ids, versions, strict=True)]
    return [
        pick(row, _READ_BACK)
        for row, version in rows
        if row is not None and row["version"] > version and row["owner"] == owner
        and row["status"] == "running" and row["claimed_at"] == now
    ]  # fmt: skip


@statement
def running(store: Store, ids: list[UUID], tokens: list[int]) -> list[Row]:
    return [pick(row, _READ_BACK) for row in running_rows(store, ids, tokens)]


@statement
def expire(
    store: Store, ids: list[UUID], versions: list[int], now: datetime, follow_ids: list[UUID]
) -> list[Row]:
    gone, over, waiting = [], [], []
    for task_id, version, follow_id in zip(ids, versions, follow_ids, strict=True):
        row = store.tasks.get(task_id)
        if row is None or row["version"] != version or row["status"] != "pending":
            continue
        if row["paused"] or row["begun"] or row["schedule"]:
            continue
        if not (_too_late(row, now) or row["following"]) or not all_waits_seen(store, row):
            continue
        error = row["error"] if row["following"] else '"expired"'
        is_followed = row["on_failure"] is not None
        store.finish(
            row, status="failed", version=row["version"] + 1, updated_at=now, finished_at=now,
            error=error, owner=None,
        )  # fmt: skip
        store.record(
            row, row["version"] + 1, row["retry_count"] + 1, "skipped", verdict="skipped",
            recorded_at=now, error=error, follow_up=follow_id if is_followed else None,
        )  # fmt: skip
        gone.append(dict.fromkeys((*WAITS_AGAIN, "slot_owner")) | {"id": task_id, "expired": True})
        over.append((row, "failed"))
        if is_followed:
            said = {
                "follow_id": follow_id, "token": row["version"] + 1, "status": "failed",
                "occurrence": row["occurrence"], "result": None, "error": error,
            }  # fmt: skip
            waiting.append(follow(store, row, said, now))
    waiting += let_waiting_go(store, over, now)
    return gone + [told(store, row) | {"expired": False} for row in waiting]


@statement
def start(
    store: Store, task_id: UUID, token: int, start_id: str, worker: str, now: datetime
) -> list[Row]:
    for row in running_rows(store, [task_id], [token]):
        if row["start_id"] in (None, start_id):
            began = row["started_at"] or now
            changed = {"start_id": start_id, "worker": worker, "started_at": began}
            store.put({**row, **changed, "updated_at": now})
            return [{"id": task_id}]
    return []


COMPLETED = ("id", "version", "type", "next_run_at", "queue", "concurrency_key")


@statement
def complete(
    store: Store, ids: list[UUID], tokens: list[int], by: list[Any], began: list[Any],
    ended: list[Any], results: list[Any], now: datetime,
) -> list[Row]:  # fmt: skip
    gone = []
    for at, (task_id, token) in enumerate(zip(ids, tokens, strict=True)):
        for row in running_rows(store, [task_id], [token]):
            if any(row[name] is not None for name in ("schedule", "on_success", "awaited")):
                continue
            complete_row(store, row, token, by[at], began[at], ended[at], results[at], now)
            gone.append(pick(row, COMPLETED))
    return gone


def complete_row(
    store: Store, row: Row, token: int, by: Any, began: Any, ended: Any, result: Any, now: datetime
) -> None:
    """One recorded success."""
    store.finish(
        row, status="completed", updated_at=now, started_at=began, finished_at=now, worker=by,
        result=result,
    )  # fmt: skip
    store.record(
        row, token, row["retry_count"] + 1, "completed", verdict="completed", worker=by,
        started_at=began, finished_at=ended, recorded_at=now, result=result,
    )  # fmt: skip


@statement
def attempts(store: Store, ids: list[UUID], tokens: list[int]) -> list[Row]:
    names = (
        "id", "version", "retry_count", "max_retries", "backoff", "on_lost", "occurrence",
        "created_at", "schedule", "overrun", "misfire_grace", "done_until", "runs_done",
        "type", "next_run_at", "completion",
    )  # fmt: skip
    return [
        pick(row, names) | {
            "follows_success": row["on_success"] is not None,
            "follows_failure": row["on_failure"] is not None,
        }
        for row in running_rows(store, ids, tokens)
    ]  # fmt: skip


SETTLED = (
    "id", "token", "outcome", "again_at", "counts", "by", "began", "ended", "error", "result",
    "status", "occurrence", "attempt", "schedule", "overrun", "ran", "next", "following",
    "done_until", "skip_until", "skip_reason", "zone_data", "was_done_until",
    "follow_id",
)  # fmt: skip


@statement
def settle(store: Store, *args: Any) -> list[Row]:
    *columns, skipped_ids, skipped_at, skipped_why, now = args
    found, over, waiting = [], [], []
    skipped = list(zip(skipped_ids, skipped_at, skipped_why, strict=True))
    for values in zip(*columns, strict=True):
        said = dict(zip(SETTLED, values, strict=True))
        for row in running_rows(store, [said["id"]], [said["token"]]):
            if any(row[name] != said[seen] for name, seen in _AS_SEEN):
                continue
            if said["again_at"] is None and not all_waits_seen(store, row):
                continue
            found.append(settle_row(store, row, said, skipped, now))
            if said["again_at"] is None:
                over.append((row, said["status"]))
            if said["follow_id"] is not None:
                status = "completed" if said["outcome"] == "completed" else "failed"
                waiting.append(follow(store, row, said | {"status": status}, now))
    waiting += let_waiting_go(store, over, now)
    more = {"freed_key": None, "of_queue": None, "ended": False}
    return found + [told(store, row) | more for row in waiting]


_AS_SEEN = (("schedule", "schedule"), ("overrun", "overrun"), ("done_until", "was_done_until"))


def settle_row(
    store: Store, row: Row, said: Row, skipped: Sequence[tuple[UUID, Any, Any]], now: datetime
) -> Row:
    """One recorded end that is not the success of a one-off."""
    if said["again_at"] is None:
        store.finish(
            row, status=said["status"], updated_at=now, started_at=said["began"], finished_at=now,
            worker=said["by"], error=said["error"], result=said["result"],
        )  # fmt: skip
        answer = dict.fromkeys(WAITS_AGAIN) | {"id": row["id"], "slot_owner": None}
    else:
        error = _unless_given_back(row["error"]) if said["error"] is None else said["error"]
        retries = row["retry_count"] + int(said["counts"])
        changed = {
            **row, "status": "pending", "next_run_at": said["again_at"],
            "retry_count": retries if said["next"] is None else 0, "owner": None,
            "claimed_at": None, "started_at": None, "start_id": None, "worker": None,
            "updated_at": now, "error": None if said["outcome"] == "completed" else error,
            "begun": said["next"] is None, "occurrence": said["next"] or row["occurrence"],
            "runs_done": row["runs_done"] + int(said["ran"]), "following": said["following"],
            "done_until": said["done_until"] or row["done_until"],
            "skip_until": said["skip_until"], "skip_reason": said["skip_reason"],
            "zone_data": said["zone_data"] or row["zone_data"],
        }  # fmt: skip
        store.put(changed)
        owner = store.slots[row["slot"]]["owner"]
        answer = pick(changed, WAITS_AGAIN) | {"slot_owner": owner}
    if said["outcome"] is not None:
        over = said["again_at"] is None or said["next"] is not None
        verdict = "completed" if said["outcome"] == "completed" else "failed"
        store.record(
            row, said["token"], said["attempt"], said["outcome"], occurrence=said["occurrence"],
            verdict=verdict if over else None,
            worker=said["by"], started_at=said["began"], finished_at=said["ended"],
            recorded_at=now, error=said["error"], result=said["result"],
            follow_up=said["follow_id"],
        )  # fmt: skip
    record_skipped(store, row, said["token"], skipped, now)
    return answer | {"freed_key": row["concurrency_key"], "of_queue": row["queue"], "ended": True}


def _unless_given_back(error: str | None) -> str | None:
    said = None if error is None else json.loads(error)
    return None if isinstance(said, dict) and said.get("type") == "given_back" else error


def record_skipped(
    store: Store, row: Row, token: int, skipped: Sequence[tuple[UUID, Any, Any]], now: datetime
) -> None:
    """Those of `skipped` that are of this task, a microsecond apart."""
    for place, (task_id, occurrence, error) in enumerate(skipped, start=1):
        if task_id == row["id"]:
            store.record(
                row, token, 1, "skipped", verdict="skipped", occurrence=occurrence, error=error,
                recorded_at=now + timedelta(microseconds=place),
            )  # fmt: skip


# slots.sql


@statement
def take_slots(
    store: Store, slots: list[int], owner: str, now: datetime, unless_others: list[int]
) -> list[Row]:
    answers: list[Row] = []
    for slot in slots:
        old = store.slots[slot]["owner"]
        epoch = None
        if slot not in unless_others or old in (None, owner):
            epoch = max(store.slots[slot]["epoch"], store.token_base) + 1
            store.take(slot, owner, epoch)
        answers.append({"slot": slot, "owner": old, "epoch": epoch})
    return answers


@statement
def let_go_slots(store: Store, slots: list[int], owner: str, now: datetime) -> list[Row]:
    for slot in slots:
        if store.slots[slot]["owner"] == owner:
            store.take(slot, None, store.slots[slot]["epoch"] + 1, now)
    return []


@statement
def slot_states(store: Store, slots: list[int]) -> list[Row]:
    return [pick(store.slots[slot], ("slot", "owner", "epoch")) for slot in slots]


@statement
def end_sessions(store: Store, *_: Any) -> list[Row]:
    return []  # no row is ever locked: each statement happens in one step


@statement
def due(
    store: Store, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime,
    limit: int,
) -> list[Row]:  # fmt: skip
    pages = _due_pages(store, slots, ats, after, before)
    return [pick(row, _DUE) for page in pages for row in page[:limit]]


@statement
def sweep(store: Store, slots: list[int], before: datetime, limit: int) -> list[Row]:
    rows = islice(chain(*_due_pages(store, sorted(slots), [], [], before)), limit)
    return _swept(store, [list(page) for _, page in groupby(rows, key=itemgetter("slot"))])


@statement
def sweep_by_slot(
    store: Store, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime,
    limit: int,
) -> list[Row]:  # fmt: skip
    return _swept(store, [page[:limit] for page in _due_pages(store, slots, ats, after, before)])


def _swept(store: Store, pages: list[list[Row]]) -> list[Row]:
    columns = ("queue", "slot", "next_run_at", "id", "version")
    found = [[Found(*(row[name] for name in columns)) for row in page] for page in pages]
    ages = [row["updated_at"] - datetime(1970, 1, 1, tzinfo=UTC) for row in store.queues.values()]
    return swept(found, sum(age // timedelta(microseconds=1) for age in ages))


@statement
def pending_tasks(store: Store, ids: list[UUID]) -> list[Row]:
    found = [store.tasks[i] for i in ids if i in store.tasks]
    waiting = [row for row in found if row["status"] == "pending" and not row["paused"]]
    waiting.sort(key=lambda row: (row["next_run_at"], row["id"]))
    return [pick(row, _DUE) for row in waiting]


@statement
def due_but(
    store: Store, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime,
    limit: int, without: list[str], without_until: datetime, of_queues: list[str],
    without_keys: list[str], looked_at: int,
) -> list[Row]:  # fmt: skip
    left_out = set(zip(of_queues, without_keys, strict=True))
    found = []
    for page in _due_pages(store, slots, ats, after, before):
        wanted = 0
        for place, row in enumerate(page[:looked_at], 1):
            is_wanted = row["next_run_at"] > without_until or (
                row["queue"] not in without
                and (row["queue"], row["concurrency_key"]) not in left_out
            )
            wanted += is_wanted
            if is_wanted or place == looked_at:
                found.append(pick(row, _DUE) | {"wanted": is_wanted, "more": place == looked_at})
            if wanted == limit:
                break
    return found


def _due_pages(
    store: Store, slots: list[int], ats: list[datetime], after: list[UUID], before: datetime
) -> list[list[Row]]:
    """What is due of each slot after its cursor, in order."""
    beginning = datetime.min.replace(tzinfo=UTC), UUID(int=0)
    begun = list(zip(ats, after, strict=True))
    cursors = dict(zip_longest(slots, begun, fillvalue=beginning))
    pages: dict[int, list[Row]] = {slot: [] for slot in slots}
    for row in store.tasks.values():
        due_at = row["next_run_at"]
        if row["status"] != "pending" or row["paused"] or row["slot"] not in cursors:
            continue
        if due_at < before and (due_at, row["id"]) > cursors[row["slot"]]:
            pages[row["slot"]].append(row)
    return [
        sorted(page, key=lambda row: (row["next_run_at"], row["id"])) for page in pages.values()
    ]


@statement
def due_best(
    store: Store, slots: list[int], queue: str, now: datetime, limit: int,
    without_keys: list[str] | None, unfair: bool = False, per_slot: int = 0, looked_at: int | None = None,
    since: datetime | None = None,
) -> list[Row]:  # fmt: skip
    found = [
        pick(row, _DUE)
        for row in store.tasks.values()
        if row["status"] == "pending" and not row["paused"] and row["slot"] in slots
        and row["queue"] == queue and row["next_run_at"] <= now
        and row["concurrency_key"] not in (without_keys or ())
        and (without_keys is not None or row["concurrency_key"] is None)
        and not (unfair and row["fairness_key"] is not None)
        and (row["priority"] != PRIORITY or since is None or row["next_run_at"] >= since)
    ]  # fmt: skip
    return sorted(found, key=lambda row: (-row["priority"], row["next_run_at"]))[:limit]


@statement
def fair_keys(store: Store, queue: str, after: str, limit: int) -> list[Row]:
    rows = store.tasks.values()
    keys = {
        row["fairness_key"] for row in rows
        if row["status"] == "pending" and not row["paused"] and row["queue"] == queue
    }  # fmt: skip
    found = sorted(key for key in keys if key is not None and key > after)
    return [{"fairness_key": key} for key in found[:limit]]


@statement
def due_fair(
    store: Store, slots: list[int], queue: str, keys: list[str], now: datetime, limit: int,
    without_keys: list[str],
) -> list[Row]:  # fmt: skip
    rows = due_best(store, slots, queue, now, len(store.tasks), without_keys)
    return [
        row for key in keys
        for row in [one for one in rows if one["fairness_key"] == key][:limit]
    ]  # fmt: skip


@statement
def due_of_key(
    store: Store, slots: list[int], queue: str, key: str, now: datetime, limit: int
) -> list[Row]:
    rows = due_best(store, slots, queue, now, len(store.tasks), [])
    return [row for row in rows if row["concurrency_key"] == key][:limit]


@statement
def running_since(
    store: Store, slots: list[int], before: datetime, limit: int, at: Any, after: Any
) -> list[Row]:
    found = [
        pick(row, ("id", "version", "queue", "claimed_at", "timeout", "owner", "completion"))
        for row in store.tasks.values()
        if row["status"] == "running" and row["slot"] in slots and row["claimed_at"] < before
        and (at is None or (row["claimed_at"], row["id"]) > (at, after))
    ]  # fmt: skip
    return sorted(found, key=lambda row: (row["claimed_at"], row["id"]))[:limit]


@statement
def running_queues(store: Store, slots: list[int]) -> list[Row]:
    rows = store.tasks.values()
    names = {r["queue"] for r in rows if r["status"] == "running" and r["slot"] in slots}
    return [{"queue": name} for name in sorted(names)]


@statement
def inflight_ids(store: Store, ids: list[UUID]) -> list[Row]:
    rows = [store.tasks[i] for i in ids if i in store.tasks]
    return [pick(row, ("id", "version")) for row in rows if row["status"] == "running"]


# counting.sql


@statement
def count_due(store: Store, slots: list[int], now: datetime) -> list[Row]:
    due_now = [
        row["id"]
        for row in store.tasks.values()
        if row["status"] == "pending" and not row["paused"] and row["slot"] in slots
        and row["next_run_at"] <= now
    ]  # fmt: skip
    return [{"tasks": len(due_now)}]


# upkeep.sql


@statement
def server_time(store: Store) -> list[Row]:
    return [{"now": store.now()}]


@statement
def try_write(store: Store) -> list[Row]:
    return [{"version": 1}]


@statement
def missing_days(store: Store, *_: Any) -> list[Row]:
    return []


@statement
def old_days(store: Store, *_: Any) -> list[Row]:
    return []  # a world does not live as long as a retention


@statement
def forget_alerts(store: Store, before: datetime) -> list[Row]:
    return []  # none are simulated


@statement
def expire_keys(store: Store, now: datetime) -> list[Row]:
    over = sorted(key for key, row in store.keys.items() if row["expires_at"] <= now)
    for key in over:
        del store.keys[key]
    return [{"key": key} for key in over]
