"""What a seed makes of a world: its size, what may go wrong in it, and when."""

import random
from typing import NamedTuple

FAULTS = (
    "postgres_noise", "postgres_outage", "postgres_stall", "redis_noise", "redis_outage",
    "redis_stall", "redis_loss", "node_kill", "node_crash", "node_pause", "node_stop", "actor_crash",
    "worker_kill", "worker_pause", "hang", "clock_step", "lossy_channels", "lease_servers",
)  # fmt: skip
"""Kinds of faults; a seed draws some of them, so that each is also seen alone and in pairs."""

TIMED = {
    "postgres_outage", "postgres_stall", "redis_outage", "redis_stall", "redis_loss", "node_kill",
    "node_pause", "node_stop", "worker_kill", "worker_pause", "clock_step",
}  # fmt: skip


class Event(NamedTuple):
    """One fault: when, what, and for how long."""

    at_s: float
    kind: str
    for_s: float


class Size(NamedTuple):
    """Of a world. Most are small: they cost little, and most of what can go wrong needs no more."""

    weight: int
    nodes: tuple[int, ...]
    workers: tuple[int, ...]
    tasks: tuple[int, int]
    slots: int
    faults_for_s: tuple[float, ...]
    pace: float
    """Factor of the times that clients and handlers take."""


SIZES = (
    Size(15, (1, 2, 2), (1, 1, 2), (2, 5), 4, (1.5, 3.0), 0.25),
    Size(4, (1, 2, 2, 3), (1, 2, 3), (4, 10), 8, (3.0, 6.0), 0.5),
    Size(1, (2, 3, 4), (2, 3), (8, 16), 16, (6.0, 10.0), 0.8),
)
"""Fewer slots than the product's: what is done for each costs time, and tells nothing new."""


class Plan(NamedTuple):
    """One seed's world."""

    nodes: int
    workers: int
    tasks: int
    slots: int
    pace: float
    queues: tuple[str, ...]
    lease_servers: tuple[str, ...]
    kinds: frozenset[str]
    events: tuple[Event, ...]
    faults_for_s: float
    submit_within_s: float
    latency_s: float


def draw(rng: random.Random, only: frozenset[str] | None = None) -> Plan:
    """The plan of a seed; `only`: with these kinds of faults instead of drawn ones."""
    kinds = only
    if kinds is None:
        kinds = frozenset(rng.sample(FAULTS, rng.choice((0, 1, 1, 2, 2, 3, 5))))
    size = rng.choices(SIZES, [one.weight for one in SIZES])[0]
    faults_for_s = rng.choice(size.faults_for_s)
    timed = sorted(kinds & TIMED)
    events = [
        Event(rng.random() * faults_for_s, rng.choice(timed), 10 ** rng.uniform(-0.5, 1.0))
        for _ in range(rng.randint(1, 5) if timed else 0)
    ]
    servers: tuple[str, ...] = ("redis",)
    if "lease_servers" in kinds:
        servers = ("lease-1", "lease-2", "lease-3")
    return Plan(
        nodes=rng.choice(size.nodes),
        workers=rng.choice(size.workers),
        tasks=rng.randint(*size.tasks),
        slots=size.slots,
        pace=size.pace,
        queues=rng.choice((("q",), ("q",), ("q", "r"))),
        lease_servers=servers,
        kinds=kinds,
        events=tuple(sorted(events)),
        faults_for_s=faults_for_s,
        submit_within_s=faults_for_s * rng.choice((0.05, 0.3, 1.0)),
        latency_s=rng.choice((0.0005, 0.002, 0.01)),
    )
