"""Draws random statements with arguments that often fit, for the test that compares two stores."""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly.storage.waits import WAITING
from simulated.store import Store

_OWNERS = ("node-a", "node-b")
_LAST = (
    '{"tags": {}, "type": "last", "delay": 0, "queue": "q", "on_lost": "retry", "payload": null, "timeout": 6, '
    '"priority": 5, "max_retries": 0}'
)
_THEN = (
    '{"tags": {}, "type": "next", "delay": 1.5, "queue": "r", "backoff": {"kind": "fixed"}, "on_lost": "fail", '
    f'"payload": {{"a": [1]}}, "timeout": 5, "priority": 7, "on_failure": {_LAST}, "max_retries": 1, '
    '"fairness_key": "f", "misfire_grace": 3}'
)


class Draws:
    """Knows what is in a store, so as to ask about it; `now` moves on with each draw."""

    def __init__(self, rng: random.Random, store: Store, now: datetime) -> None:
        self._rng = rng
        self._store = store
        self.now = now
        self._ids: list[UUID] = [UUID(int=rng.getrandbits(128)) for _ in range(3)]

    def draw(self) -> tuple[str, tuple[Any, ...]]:
        """A statement's name and its arguments."""
        self.now += timedelta(milliseconds=self._rng.randrange(3000))
        name = self._rng.choice(_NAMES)
        args: tuple[Any, ...] = getattr(self, f"_{name}")()
        return name, args

    # Arguments

    def _new_id(self) -> UUID:
        self._ids.append(UUID(int=self._rng.getrandbits(128)))
        return self._ids[-1]

    def _some_ids(self) -> list[UUID]:
        known = self._ids[-12:]
        return self._rng.sample(known, self._rng.randint(1, min(4, len(known))))

    def _version(self, task_id: UUID) -> int:
        row = self._store.tasks.get(task_id) or self._store.finished.get(task_id)
        return (row["version"] if row else 0) + self._rng.choice((0, 0, 0, 0, -1, 1))

    def _time(self, least_s: float = -20, most_s: float = 20) -> datetime:
        return self.now + timedelta(seconds=round(self._rng.uniform(least_s, most_s), 3))

    def _some_slots(self) -> list[int]:
        rows = list(self._store.tasks.values())
        wanted = {row["slot"] for row in self._rng.sample(rows, min(6, len(rows)))}
        return sorted(wanted | {self._rng.randrange(256)})

    def _schedule(self) -> tuple[str | None, timedelta | None]:
        every = self._rng.choice((None, 7, 9))
        return (f'{{"every": {every}}}', timedelta(seconds=every)) if every else (None, None)

    def _keys(self) -> tuple[Any, ...]:
        key = self._rng.choice((None, "a", "b"))
        limit = None if key is None else self._rng.choice((None, 1, 2))
        return key, limit, self._rng.choice((None, "f", "g"))

    def _skips(self, ids: list[UUID]) -> tuple[list[UUID], list[datetime], list[str]]:
        """Of some of these tasks."""
        some = [self._rng.choice(ids) for _ in range(self._rng.choice((0, 0, 1, 3)))]
        return some, [self._time() for _ in some], ['{"type": "misfire"}' for _ in some]

    # Statements

    def _submit(self) -> tuple[Any, ...]:
        rng = self._rng
        asked: list[tuple[Any, ...]] = []
        for key in rng.sample(("k1", "k2", "k3", None, None), rng.randint(1, 4)):
            own = rng.random() < 0.2
            task_id = rng.choice(self._ids) if own else UUID(int=rng.getrandbits(128))
            if task_id in (one[0] for one in asked):
                continue
            if not own:
                self._ids.append(task_id)
            after = self._after()
            due = self._time() if after is None else WAITING
            asked.append((
                task_id, "t", rng.choice("qr"), '{"n": 1}', due, rng.randrange(3),
                rng.choice((None, '{"kind": "fixed"}')), 5.0, rng.choice((None, None, 3.0)),
                rng.choice(("retry", "fail")), rng.randrange(10), key, key and b"f", "{}", own,
                self.now - timedelta(seconds=rng.randrange(3)), self._time(),
                *self._schedule(), rng.choice(("skip", "queue")), rng.choice((None, self._time())),
                rng.choice((None, "2026a", "2026b")), *self._keys(),
                rng.choice((None, "00-1-2-01")), rng.choice((None, "eu")),
                rng.choice((None, None, "m", "n")),
                rng.choice((None, _THEN)), rng.choice((None, _THEN)), after,
            ))  # fmt: skip
        return (*map(list, zip(*asked, strict=True)), self.now, self._time(1, 20))

    def _after(self) -> str | None:
        if self._rng.random() < 0.7:
            return None
        return json.dumps([str(one) for one in self._some_ids()])

    def _pairs(self) -> tuple[list[UUID], list[UUID]]:
        """Parents, and who waits for each, as nobody does yet."""
        rows = self._store.tasks.values()
        wanted = {(one, row["id"]) for row in rows for one in row["waits_for"] or ()}
        some = sorted(wanted - self._store.waits)[:3]
        return [one[0] for one in some], [one[1] for one in some]

    _add_waits = _pairs

    def _note_waits(self) -> tuple[Any, ...]:
        wanted = {parent for parent, _ in self._store.waits} & self._store.tasks.keys()
        ids = sorted(wanted)[:3]
        return ids, [self._rng.choice((1, 1, 2)) for _ in ids]

    def _ended_before(self) -> tuple[Any, ...]:
        return self._some_ids(), self._some_ids()

    def _submit_plain(self) -> tuple[Any, ...]:
        rng = self._rng
        ids = [UUID(int=rng.getrandbits(128)) for _ in range(rng.randint(1, 4))]
        self._ids += ids
        kinds: tuple[Callable[[], Any], ...] = (
            lambda: rng.choice("tu"), lambda: rng.choice("qr"), lambda: rng.choice(('{"n": 1}', "2")),
            self._time, lambda: rng.randrange(3), lambda: rng.choice((None, '{"kind": "fixed"}')),
            lambda: rng.choice((5.0, 6.0)), lambda: rng.randrange(10), lambda: rng.choice(("{}", '{"a": "b"}')),
            lambda: rng.choice((None, "00-1-2-01")), lambda: self.now - timedelta(seconds=rng.randrange(3)),
        )  # fmt: skip
        columns = [[draw() for _ in ids] for draw in kinds]
        nullable = (columns[5], columns[9])
        short = [c[:1] if len(set(c)) == 1 and c not in nullable else c for c in columns]
        return (
            ids,
            *([] if set(c) == {None} else c for c in short),
            rng.choice((None, self._time())),
        )

    def _claim(self) -> tuple[Any, ...]:
        store = self._store
        ids = [i for i in self._some_ids() if i in store.tasks]
        slots = sorted({store.tasks[i]["slot"] for i in ids})
        wrong = self._rng.random() < 0.15
        epochs = [store.slots[slot]["epoch"] + wrong for slot in slots]
        inline = self._rng.choice((0, 1000))
        owner = self._rng.choice(_OWNERS)
        return ids, [self._version(i) for i in ids], owner, slots, epochs, self.now, inline

    def _claim_in_turn(self) -> tuple[Any, ...]:
        ids, *more = self._claim()
        rows = [self._store.tasks[task_id] for task_id in ids]
        keys = [self._rng.choice((row["concurrency_key"],) * 5 + ("a",)) for row in rows]
        queue = self._rng.choice((None, "q", "r"))
        if queue is not None:
            keep = [at for at, row in enumerate(rows) if row["queue"] == queue]
            ids, keys = [ids[at] for at in keep], [keys[at] for at in keep]
            more[0] = [more[0][at] for at in keep]
        return ids, *more, keys, queue

    def _in_flight(self) -> tuple[Any, ...]:
        return (self._rng.choice("qr"),)

    def _key_holders(self) -> tuple[Any, ...]:
        return self._rng.choice(self._ids[-12:]), 10

    def _ids_and_tokens(self) -> tuple[list[UUID], list[int]]:
        ids = self._some_ids()
        return ids, [self._version(i) for i in ids]

    def _payloads(self) -> tuple[Any, ...]:
        return (self._some_ids(),)

    _inflight_ids = _queues = _get = _withdraw_finished = _ends_of = _payloads

    def _claimed(self) -> tuple[Any, ...]:
        ids, tokens = self._ids_and_tokens()
        known = [self._store.tasks[i]["claimed_at"] for i in ids if i in self._store.tasks]
        at = self._rng.choice([*(one for one in known if one), self.now])
        return ids, [token - 1 for token in tokens], self._rng.choice(_OWNERS), at

    _running = _attempts = _ids_and_tokens

    def _expire(self) -> tuple[Any, ...]:
        ids, versions = self._ids_and_tokens()
        return ids, versions, self.now, [self._new_id() for _ in ids]

    def _start(self) -> tuple[Any, ...]:
        (task_id, *_), (token, *_) = self._ids_and_tokens()
        return task_id, token, self._rng.choice(("s1", "s2")), "w1", self.now

    def _complete(self) -> tuple[Any, ...]:
        ids, tokens = self._ids_and_tokens()
        some = len(ids)
        return ids, tokens, ["w1"] * some, [self.now] * some, [None] * some, ["1"] * some, self.now

    def _settle(self) -> tuple[Any, ...]:
        rng = self._rng
        ids, tokens = self._ids_and_tokens()
        some = len(ids)
        rows = [self._store.tasks.get(i) for i in ids]
        return (
            ids, tokens, [rng.choice(("failed", "lost", "completed", None)) for _ in ids],
            [rng.choice((None, self._time(0), self._time(0))) for _ in ids],
            [rng.random() < 0.5 for _ in ids], ["w1"] * some, [None] * some, [self.now] * some,
            [rng.choice((None, '"no"', '{"type": "given_back"}')) for _ in ids],
            [rng.choice((None, "1")) for _ in ids],
            [rng.choice(("failed", "completed")) for _ in ids], [self._time() for _ in ids],
            [rng.randrange(1, 4) for _ in ids],
            [row["schedule"] if row and rng.random() < 0.9 else None for row in rows],
            [row["overrun"] if row and rng.random() < 0.9 else "skip" for row in rows],
            [rng.random() < 0.5 for _ in ids], *(self._maybe_times(some) for _ in range(4)),
            [rng.choice((None, "overrun")) for _ in ids],
            [rng.choice((None, "2026b")) for _ in ids],
            [row["done_until"] if row and rng.random() < 0.9 else None for row in rows],
            [self._new_id() if row and row["on_success"] and row["on_failure"] else None for row in rows],
            *self._skips(ids), self.now,
        )  # fmt: skip

    def _maybe_times(self, some: int) -> list[datetime | None]:
        return [self._rng.choice((None, self._time())) for _ in range(some)]

    def _courses(self) -> tuple[Any, ...]:
        return (self._some_ids(),)

    def _advance(self) -> tuple[Any, ...]:
        rng = self._rng
        ids, versions = self._ids_and_tokens()
        some = len(ids)
        return (
            ids, versions, [self._time() for _ in ids],
            [rng.choice((None, self._time(), self._time())) for _ in ids],
            *(self._maybe_times(some) for _ in range(3)),
            [rng.choice((None, "paused")) for _ in ids],
            [rng.choice((None, "2026b")) for _ in ids], *self._skips(ids), rng.random() < 0.5,
            self.now,
        )  # fmt: skip

    def _pause(self) -> tuple[Any, ...]:
        return self._rng.choice(self._ids[-12:]), self.now, self._rng.random() < 0.5, "anna"

    def _zone_outdated(self) -> tuple[Any, ...]:
        return self._rng.choice(_OWNERS), self._rng.choice(("2026a", "2026b", "2026c")), 100

    def _take_slots(self) -> tuple[Any, ...]:
        slots = self._some_slots()
        return slots, self._rng.choice(_OWNERS), self.now, self._rng.sample(slots, len(slots) // 2)

    def _let_go_slots(self) -> tuple[Any, ...]:
        return self._some_slots(), self._rng.choice(_OWNERS), self.now

    def _slot_states(self) -> tuple[Any, ...]:
        return (self._some_slots(),)

    def _stored(self) -> tuple[Any, ...]:
        ids = self._some_ids()
        known = {row["id"]: row["created_at"] for row in self._store.tasks.values()}
        return ids, [self._rng.choice((known.get(i, self.now), self.now)) for i in ids]

    def _due(self) -> tuple[Any, ...]:
        slots = self._some_slots()
        begun = self._rng.randint(0, len(slots))
        cursors = [self._time(-40, 0) for _ in range(begun)]
        after = [self._rng.choice(self._ids) for _ in range(begun)]
        return slots, cursors, after, self._time(0), self._rng.randint(1, 3)

    def _sweep(self) -> tuple[Any, ...]:
        return self._some_slots(), self._time(0), self._rng.randint(1, 6)

    def _sweep_by_slot(self) -> tuple[Any, ...]:
        return self._due()

    def _pending_tasks(self) -> tuple[Any, ...]:
        return (self._some_ids(),)

    def _due_but(self) -> tuple[Any, ...]:
        without: list[str] = self._rng.choice(([], ["q"]))
        keys = self._rng.choice((([], []), (["q", "r"], ["a", "b"])))
        looked_at = self._rng.randint(1, 6)
        return *self._due(), without, self._time(), *keys, looked_at

    def _due_best(self) -> tuple[Any, ...]:
        keys: list[str] | None = self._rng.choice(([], ["a"], None))
        unfair = self._rng.random() < 0.5
        queue = self._rng.choice("qr")
        since = self._rng.choice((None, self._time()))
        return self._some_slots(), queue, self._time(), 100, keys, unfair, 100, 100, since

    def _fair_keys(self) -> tuple[Any, ...]:
        return self._rng.choice("qr"), self._rng.choice(("", "f", "g")), self._rng.choice((1, 5))

    def _due_fair(self) -> tuple[Any, ...]:
        _, queue, now, _, without, *_ = self._due_best()
        return list(range(256)), queue, ["f", "g"], now, 100, without or []

    def _due_of_key(self) -> tuple[Any, ...]:
        key, queue = self._rng.choice("ab"), self._rng.choice("qr")
        return list(range(256)), queue, key, self._time(), 100

    def _running_since(self) -> tuple[Any, ...]:
        place = self._rng.choice(((None, None), (self._time(-20, 0), self._ids[0])))
        return self._some_slots(), self._time(), self._rng.randint(1, 9), *place

    def _running_queues(self) -> tuple[Any, ...]:
        return (self._some_slots(),)

    def _count_due(self) -> tuple[Any, ...]:
        return self._some_slots(), self._time()

    def _expire_keys(self) -> tuple[Any, ...]:
        return (self.now,)

    def _cancel(self) -> tuple[Any, ...]:
        task_id = self._rng.choice(self._ids[-12:])
        row = self._store.tasks.get(task_id)
        seen = (None, None, None, None)
        if row is not None and self._rng.random() < 0.8:
            seen = (row["version"], row["status"], row["schedule"], row["done_until"])
        return task_id, self.now, *seen, *self._skips([task_id])[1:], *self._only()

    def _is_so(self) -> tuple[Any, ...]:
        return self._rng.choice(self._ids[-12:]), *self._only()

    def _only(self) -> tuple[Any, ...]:
        choice = self._rng.choice
        return (
            choice((None, None, None, "pending", "running")),
            choice((None, None, None, "{}", '{"a": "b"}')),
            choice((None, None, None, self._time())), choice((None, None, None, self._time())),
            choice((None, None, None, True, False)),
        )  # fmt: skip

    def _reject(self) -> tuple[Any, ...]:
        rng = self._rng
        outcomes, workers = ("completed", "failed", "snoozed", "more"), ("w1", "")
        ids, tokens = self._ids_and_tokens()
        keys = {
            (task_id, token, rng.choice(outcomes), rng.choice(workers))
            for task_id, token in zip(ids, tokens, strict=True)
        }
        rest = [
            (rng.choice((None, self.now)), self.now, rng.choice((None, '"no"')), 2) for _ in keys
        ]
        rows = [(*key, *more) for key, more in zip(sorted(keys), rest, strict=True)]
        day = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        return *map(list, zip(*rows, strict=True)), day, self.now

    def _named(self) -> tuple[Any, ...]:
        return (self._rng.sample(("l", "m", "n"), 2),)

    def _retry(self) -> tuple[Any, ...]:
        task_id, store = self._rng.choice(self._ids[-12:]), self._store
        name = store.finished.get(task_id, {"name": None})["name"]
        if name is not None and any(row["name"] == name for row in store.tasks.values()):
            task_id = UUID(int=0)  # it would be refused, and the next statements with it
        return task_id, self.now

    def _patch(self) -> tuple[Any, ...]:
        rng, task_id = self._rng, self._rng.choice(self._ids[-12:])
        if_version = rng.choice((None, self._version(task_id)))
        return (
            task_id, self.now, if_version, rng.choice((None, self._time())),
            rng.choice((None, "[]")), rng.choice((None, 3)), rng.choice((None, 2)), None,
            rng.choice((None, 9.0)), rng.choice((None, '{"a": "b"}')), rng.random() < 0.3,
            rng.choice((None, 7.0)), *self._schedule(), rng.choice((None, "skip", "queue")),
            rng.random() < 0.5, *self._decided(task_id),
        )  # fmt: skip

    def _decided(self, task_id: UUID) -> tuple[Any, ...]:
        rng = self._rng
        row = self._store.tasks.get(task_id)
        status = row["status"] if row and rng.random() < 0.8 else "pending"
        at = rng.choice(((None, None), (self._version(task_id), status)))
        times = (self._time(), self._time(), *self._maybe_times(2), rng.choice((None, "2026b")))
        _, skipped_at, skipped_why = self._skips([task_id])
        seen = (row["schedule"], row["done_until"]) if row and rng.random() < 0.8 else (None, None)
        recount = rng.choice((0, 0, 1, -1))
        to = rng.choice(((None,) * 5, times))
        set_key, set_fairness = rng.random() < 0.3, rng.random() < 0.3
        keys = rng.choice((None, "a", "b")), rng.choice((None, 3))
        changed = set_key, *keys, set_fairness, rng.choice((None, "f")), rng.random() < 0.2
        return *at, *to, skipped_at, skipped_why, *seen, recount, *changed

    def _queue_controls(self) -> tuple[Any, ...]:
        return ()

    def _control_queue(self) -> tuple[Any, ...]:
        rng = self._rng
        flags = [rng.random() < 0.5 for _ in range(3)]
        limits = [rng.choice((None, 1, 7)) if flag else None for flag in flags]
        paused, who = rng.choice((None, True, False)), rng.choice((None, "ann", "bob"))
        pairs = [word for pair in zip(flags, limits, strict=True) for word in pair]
        return rng.choice("qr"), paused, *pairs, self.now, who

    def _waiting(self) -> tuple[Any, ...]:
        parents = [parent for parent, _ in self._store.waits] or self._ids
        after = self._rng.choice((None, UUID(int=self._rng.getrandbits(128))))
        return self._rng.choice(sorted(parents)), after, 2

    def _runs(self) -> tuple[Any, ...]:
        return self._rng.choice(self._ids[-12:]), None, None, 100


_NAMES = sorted(
    name.removeprefix("_")
    for name in vars(Draws)
    if name.startswith("_") and name.removeprefix("_") in Store.known()
)
_NAMES += ["submit", "submit_plain", "claim", "claim_in_turn", "complete", "settle", "patch"] * 3
_NAMES += ["add_waits", "note_waits", "ended_before", "expire"]
