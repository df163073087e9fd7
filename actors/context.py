"""What every actor is given: options, stores, the clock, and the others' mailboxes."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from duly.actors.feed import Feed
from duly.actors.known_controls import Controls
from duly.actors.lead import Lead
from duly.actors.messages import (
    DispatcherMessage,
    Missed,
    PrefetcherMessage,
    ReaperMessage,
    RecorderMessage,
    Refused,
    Submit,
    TickerMessage,
)
from duly.actors.meters.meters import Meters
from duly.actors.node_info import ZoneVersions
from duly.actors.runtime import Mailbox
from duly.actors.troubles import Troubles
from duly.storage.database import Database
from duly.storage.ids import uuid7, uuid7_that
from duly.storage.layout import Layout
from duly.storage.leases import LeaseServers
from duly.storage.members import Members
from duly.storage.slots import SLOTS
from duly.storage.statistics import Statistics
from duly.storage.streams import Streams
from duly.wheel.clock import ClusterClock


@dataclass(frozen=True)
class Options:
    """How the actors work. Durations in seconds."""

    lease_ttl_s: float = 4.0
    lease_renew_s: float = 1.0
    horizon_s: float = 120.0
    """Tasks due within this are kept in the wheel."""
    wheel_cap: int = 200_000
    """Entries the wheel takes from the prefetcher at most."""
    sweep_every_s: float = 0.5
    claim_ahead_s: float = 0.04
    """So long before its due time a task is claimed at most."""
    dispatch_grace_s: float = 10.0
    """A claim older than this must be in the stream, with a worker, or reported."""
    window_floor: int = 100
    """A queue's undelivered backlog may be this large whatever its workers."""
    idempotency_ttl_s: float = 86_400.0
    retention_s: float = 7 * 86_400.0
    archive_before_drop: bool = False
    """Days of tasks and runs are kept beyond it until they have been exported."""
    pulse_s: float = 0.25
    """How often the delay of the event loop is measured."""


@dataclass
class Boxes:
    """The mailboxes of a node. They outlive the actors that read them."""

    submitter: Mailbox[Submit] = field(default_factory=lambda: Mailbox("submitter", 2000))
    prefetcher: Mailbox[PrefetcherMessage] = field(
        default_factory=lambda: Mailbox("prefetcher", 64)
    )
    ticker: Mailbox[TickerMessage] = field(default_factory=lambda: Mailbox("ticker", 1000))
    dispatcher: Mailbox[DispatcherMessage] = field(
        default_factory=lambda: Mailbox("dispatcher", 64)
    )
    catchup: Mailbox[Missed] = field(default_factory=lambda: Mailbox("catchup", 64))
    recorder: Mailbox[RecorderMessage] = field(default_factory=lambda: Mailbox("recorder", 200))
    reaper: Mailbox[ReaperMessage] = field(default_factory=lambda: Mailbox("reaper", 8))
    leases: Mailbox[Refused] = field(default_factory=lambda: Mailbox("leases", 1))


@dataclass
class Vitals:
    """What health and statistics show; each field is written by one actor."""

    slots: frozenset[int] = frozenset()
    """Whose leases this node holds."""
    lease_valid_until: float = 0.0
    lease_renewed_at: float = 0.0
    """On the monotonic clock: of the lease that was renewed the longest ago."""
    wheel_entries: int = 0
    ready_entries: int = 0
    postgres: Troubles = field(default_factory=Troubles)
    """Work that PostgreSQL keeps from being done."""
    redis: Troubles = field(default_factory=Troubles)
    """Work that Redis keeps from being done; while there is any, the node is not ready."""
    queues: Troubles = field(default_factory=Troubles)
    """Work that the keys of one queue keep from being done; the other queues go on."""
    claimed: int = 0
    recorded: int = 0
    stale_reports: int = 0
    unkept_reports: int = 0
    """Stale reports that the ledger has not kept: too many at once."""
    lost: int = 0
    timed_out: int = 0
    republished: int = 0
    open_alerts: dict[str, int] = field(default_factory=dict)
    """How many are open in the store, by kind; as of the watcher's last round."""

    unexported_days: dict[str, int] = field(default_factory=dict)
    """Days by table that are past the retention and wait for an export; as of the last round of upkeep."""

    @property
    def owned_slots(self) -> int:
        """How many slots this node holds."""
        return len(self.slots)


@dataclass
class Context:
    """Shared by the actors of one node; nothing in it is any actor's own state."""

    node_id: str
    options: Options
    db: Database
    """For the firing path; submissions and reads have a pool of their own."""
    api_db: Database
    streams: Streams
    lease_servers: LeaseServers
    members: Members
    statistics: Statistics
    clock: ClusterClock
    boxes: Boxes = field(default_factory=Boxes)
    vitals: Vitals = field(default_factory=Vitals)
    controls: Controls = field(default_factory=Controls)
    """What operators have set of the queues."""
    meters: Meters = field(default_factory=Meters)
    feed: Feed = field(default_factory=Feed)
    """Tells whoever looks on what happens to tasks."""
    zone_versions: ZoneVersions = field(default_factory=ZoneVersions)
    """Of the live nodes; the leases look at each beat."""
    lead: Lead = field(init=False)
    """The dispatcher's claims set it, the ticker goes by it."""
    layout: Layout | None = None
    """Where the slots are; None if there is only one store."""
    store: int = 0
    """Number of the store that this context is of: each has a context of its own."""
    bulk_news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a bulk action was added here: the node need not wait for its next look."""
    home: Database | None = None
    """Of several stores, the first one, for the others: it has what is not of a task."""
    stores: Sequence[Database] = ()
    """Of several stores, all of them, by number."""

    def __post_init__(self) -> None:
        self.lead = Lead(self.options.claim_ahead_s)

    @property
    def slots(self) -> Collection[int]:
        """The slots that the store holds."""
        return range(SLOTS) if self.layout is None else self.layout.held(self.store)

    def holds(self, task_id: UUID) -> bool:
        """Whether this is a task of the store: only then its row, here or not, says anything."""
        return self.layout is None or self.layout.holds(self.store, task_id)

    def draw_id(self) -> UUID:
        """An id for a new task of the store."""
        now_ms = self.clock.now_us() // 1000
        return uuid7_that(self.holds, now_ms) if self.slots else uuid7(now_ms)
