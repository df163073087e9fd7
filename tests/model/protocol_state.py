"""The state of one task in a small cluster, and the rules by which it may move.

Everything is a tuple, so that states can be hashed and compared. Numbers stand in for what is random
in the real thing: the ids of entries, reports and starts count up.
"""

from dataclasses import dataclass
from typing import NamedTuple

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED = (
    "pending",
    "running",
    "completed",
    "failed",
    "cancelled",
)
FINAL = frozenset({COMPLETED, FAILED, CANCELLED})

UP, PAUSED, DEAD, SILENT = "up", "paused", "dead", "silent"
"""Of a node: up, paused or dead. Of a worker: up, dead, or silent (its liveness is gone, it is not)."""

JUMP = 10
"""By how much a promotion raises the tokens (1 << 40 in the real thing)."""


class Store(NamedTuple):
    """PostgreSQL: the task's row, what is recorded of it, and its slot."""

    status: str = PENDING
    version: int = 0
    retries: int = 0
    claimed_by: int = -1
    start_id: int = 0
    due: int = 0
    recorded: tuple[int, ...] = ()
    epoch: int = 1
    slot_owner: int = 0
    timeline: int = 0


class Entry(NamedTuple):
    """In the tasks stream; `holder`: the worker in whose pending list it is, -1 = undelivered."""

    id: int
    token: int
    holder: int = -1


class Report(NamedTuple):
    """In the reports stream; `handled`: a node has done the first of its two steps."""

    id: int
    token: int
    outcome: str
    handled: bool = False


class Redis(NamedTuple):
    """The streams and the two hashes, for the one task there is; 0 = no such field."""

    entries: tuple[Entry, ...] = ()
    inflight: int = 0
    place: int = 0
    """The `entries` hash: the id of the task's own entry."""
    reports: tuple[Report, ...] = ()
    newest: int = 0
    """last-generated-id of the reports stream."""


class Known(NamedTuple):
    """What a node's wheel knows of a pending task."""

    version: int
    due: int


class Claim(NamedTuple):
    """A claim statement: sent, checked (only if the epoch is not locked), or in doubt."""

    phase: str
    known: Known
    epoch: int


class Burial(NamedTuple):
    """What a reaper is about to record as lost, or has recorded."""

    recorded: bool
    entry: int
    token: int


class Node(NamedTuple):
    """One node: what it believes, and what it is in the middle of."""

    life: str = UP
    epoch: int = 0
    """Of the slot, if it believes to own it, else 0."""
    known: Known | None = None
    claim: Claim | None = None
    publishing: int = 0
    """The token that it will publish; negative: it must first look whether that still runs."""
    absent: tuple[int, int] | None = None
    """(token, newest report) when the entry was seen to be absent."""
    burial: Burial | None = None
    refused: bool = False
    """A claim was: it must look which epoch the slot has."""


class Worker(NamedTuple):
    """One worker with one slot. Phases: idle, read, confirming, running, done, reporting."""

    life: str = UP
    phase: str = "idle"
    entry: int = 0
    token: int = 0
    start_id: int = 0
    outcome: str = ""


class Faults(NamedTuple):
    """How often each may still happen."""

    node_crash: int = 0
    node_pause: int = 0
    worker_crash: int = 0
    worker_silence: int = 0
    false_expiry: int = 0
    redis_loss: int = 0
    redis_rewind: int = 0
    promotion: int = 0
    doubt: int = 0
    failure: int = 0
    cancel: int = 0
    change: int = 0


class Seen(NamedTuple):
    """History, for the invariants only: no step depends on it but by making new ids."""

    ids: int = 0
    claimed: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    effects: int = 0


class State(NamedTuple):
    """All of it."""

    store: Store
    redis: Redis
    nodes: tuple[Node, ...]
    workers: tuple[Worker, ...]
    faults: Faults
    seen: Seen = Seen()
    clock: int = 0
    cancel: str = ""
    """"", pending or running (as the task was when that committed), then answered-pending or …."""
    done: bool = False
    """The guard of the effect, in the user's own database."""
    standby: Store | None = None
    """What a promotion would bring back: the store without its last commit."""
    replica: Redis | None = None
    """What a fail-over of Redis would bring back: its data without the last write."""


class Event(NamedTuple):
    """What happened: a verb, who did it (-1 = nobody in particular), and the token."""

    name: str
    who: int = -1
    token: int = 0
    outcome: str = ""


@dataclass(frozen=True)
class Rules:
    """The task's own settings, and the safeguards: each can be switched off."""

    on_lost_fail: bool = False
    max_retries: int = 1

    claim_version: bool = True
    claim_status: bool = True
    claim_epoch: bool = True
    epoch_lock: bool = True
    epoch_jump: bool = True
    verify_epoch: bool = True
    publish_after_commit: bool = True
    publish_keeps_higher: bool = True
    begin_inflight: bool = True
    confirm: bool = True
    confirm_start_id: bool = True
    guard: bool = True
    report_with_ack: bool = True
    record_token: bool = True
    record_status: bool = True
    record_before_settle: bool = True
    settle_token: bool = True
    reaper_token: bool = True
    republish: bool = True
    republish_mark: bool = True
    end_started: bool = True
    supersede_pending: bool = True
    supersede_running: bool = True
    timeline_jump: bool = True
