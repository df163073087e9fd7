"""The tree of one node. The only file that names every actor, in the order in which they start."""

import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from duly.actors.broadcaster import Broadcaster
from duly.actors.catchup import CatchUp
from duly.actors.clock import ClockActor
from duly.actors.context import Context, Options
from duly.actors.controls import ControlReader
from duly.actors.dispatcher import Dispatcher
from duly.actors.fences import FenceKeeper
from duly.actors.leases import LeaseActor
from duly.actors.listener import Listener
from duly.actors.meters.meters import Meters
from duly.actors.meters.statistics import StatisticsActor
from duly.actors.notices import Notices
from duly.actors.prefetcher import Prefetcher
from duly.actors.reaper import Reaper
from duly.actors.recorder import Recorder
from duly.actors.rehearsal import Rehearsal
from duly.actors.runtime import Child, Strategy, Supervisor
from duly.actors.submitter import Submitter
from duly.actors.ticker import Ticker
from duly.actors.upkeep import Upkeep
from duly.actors.watcher import Watcher
from duly.nodes.bulk.runner import BulkRunner
from duly.nodes.regions.directory import Regions
from duly.nodes.regions.forwarder import Forwarder
from duly.nodes.server import Announce, ApiServer
from duly.nodes.settings import Settings
from duly.nodes.store_actor import FirstSample, StoreActor
from duly.nodes.webhook import Webhook
from duly.storage.database import Database
from duly.storage.layout import Layout
from duly.storage.leases import LeaseServers
from duly.storage.members import Members, id_in_store
from duly.storage.notices import Limits
from duly.storage.slots import session_name
from duly.storage.statistics import Statistics
from duly.storage.streams import Streams
from duly.storage.writer import Writer
from duly.wheel.clock import ClusterClock

_LEASE_TIMEOUT_SHARE = 0.1  # of the TTL: a lease server that swallows packets costs little
_MEMBERS_TIMEOUT_SHARE = 0.25  # of the TTL: a beat that hangs is followed by another in time


def tree(context: Context, settings: Settings, announce: Announce) -> Supervisor:
    """Each actor builds on those above it; one that crashes takes those below along.

    So the leases, which tell all others what to act on, begin anew whichever of them crashed.
    """
    regions = Regions(settings.region, settings.regions)
    children = [
        *_firing(context, settings, regions),
        Child("api", lambda: ApiServer([context], settings, announce, regions)),
        _leases(context),
    ]
    return _supervisor("node", children, settings)


def tree_of_stores(
    contexts: Sequence[Context], settings: Settings, announce: Announce
) -> Supervisor:
    """One API, and for each store a tree of its own, which no other store holds up.

    The API is the last to stop: by then each of the others has handed its slots over.
    """
    regions = Regions(settings.region, ())
    children = [
        Child("first sample", lambda: FirstSample(contexts)),
        Child("api", lambda: ApiServer(contexts, settings, announce, regions)),
    ]
    for context in contexts:
        of_store = partial(_tree_of_store, context, settings)
        child = partial(StoreActor, context, settings.stores, of_store)
        children.append(Child(f"store {context.store}", child, grace_s=math.inf))
    return _supervisor("node", children, settings, "one_for_one")


def _tree_of_store(context: Context, settings: Settings) -> Supervisor:
    regions = Regions(settings.region, ())
    fences = Child("fences", lambda: FenceKeeper(context))
    children = [*_firing(context, settings, regions), fences, _leases(context)]
    return _supervisor(f"store {context.store}", children, settings)


def _supervisor(
    name: str, children: Sequence[Child], settings: Settings, strategy: Strategy = "rest_for_one"
) -> Supervisor:
    return Supervisor(
        name,
        children,
        strategy=strategy,
        max_restarts=10,
        within_s=30.0,
        stop_grace_s=settings.stop_grace_s,
    )


def _leases(context: Context) -> Child:
    """The first to stop: a request that takes its time does not hold up the hand-over."""
    return Child("leases", lambda: LeaseActor(context), context.boxes.leases)


def _firing(context: Context, settings: Settings, regions: Regions) -> list[Child]:
    """What works on a store, in the order of the start."""
    boxes = context.boxes
    limits = Limits(settings.payload_limit_bytes, settings.idempotency_ttl_s, settings.region)
    return [
        Child("clock", lambda: ClockActor(context)),
        # Stops after those whose work it counts.
        Child("statistics", lambda: StatisticsActor(context)),
        Child("upkeep", lambda: Upkeep(context)),
        Child("controls", lambda: ControlReader(context)),
        Child("watcher", lambda: Watcher(context)),
        Child("webhook", lambda: Webhook(context, settings.alert_webhook_url)),
        Child("rehearsal", lambda: Rehearsal(context)),
        Child("ticker", lambda: Ticker(context), boxes.ticker),
        Child("dispatcher", lambda: Dispatcher(context), boxes.dispatcher),
        Child("prefetcher", lambda: Prefetcher(context), boxes.prefetcher),
        Child("catchup", lambda: CatchUp(context), boxes.catchup),
        Child("listener", lambda: Listener(context)),
        Child("notices", lambda: Notices(context, settings.stores[context.store], limits)),
        Child("recorder", lambda: Recorder(context), boxes.recorder),
        Child("reaper", lambda: Reaper(context), boxes.reaper),
        Child("submitter", lambda: Submitter(context), boxes.submitter),
        Child("broadcaster", lambda: Broadcaster(context)),
        Child("forwarder", lambda: Forwarder(context, regions)),
        Child("bulk", lambda: BulkRunner(context)),
    ]


@asynccontextmanager
async def open_context(
    settings: Settings, clock: ClusterClock | None = None
) -> AsyncIterator[Context]:
    """Everything the actors share; closed in reverse, whatever happens. `clock`: for tests, one that they set."""
    async with AsyncExitStack() as stack:
        clock = clock or ClusterClock(time.monotonic)
        (url,) = settings.stores
        yield await _open(stack, settings, _new_id(settings), url, clock)


@asynccontextmanager
async def open_contexts(settings: Settings, layout: Layout) -> AsyncIterator[list[Context]]:
    """The same for each of several stores; they share a clock, which is that of the first."""
    async with AsyncExitStack() as stack:
        clock = ClusterClock(time.monotonic)
        node_id = _new_id(settings)
        contexts = [
            await _open(stack, settings, id_in_store(node_id, at), url, clock, layout, at)
            for at, url in enumerate(settings.stores)
        ]
        for context in contexts[1:]:
            context.home = contexts[0].db
        for context in contexts:
            context.stores = [one.db for one in contexts]
        yield contexts


def _new_id(settings: Settings) -> str:
    """New at every start: a restarted process is a new owner, even under the same name."""
    return f"{settings.node_name}-{os.getpid()}-{secrets.token_hex(4)}"


async def _open(
    stack: AsyncExitStack,
    settings: Settings,
    node_id: str,
    database_url: str,
    clock: ClusterClock,
    layout: Layout | None = None,
    store: int = 0,
) -> Context:
    assert settings.redis_url is not None
    meters = Meters()
    databases = []
    writer = Writer(database_url)
    for size in (settings.db_core_pool_size, settings.db_pool_size):
        database = Database(
            database_url,
            application=session_name(node_id),
            pool_size=size,
            statement_timeout_s=settings.db_statement_timeout_s,
            writer=writer,
            timed=meters.statement,
        )
        stack.push_async_callback(database.close)
        databases.append(database)
    streams = Streams(
        settings.redis_url,
        node_id,
        settings.redis_timeout_s,
        store=store,
        holds=None if layout is None else partial(layout.holds, store),
    )
    stack.push_async_callback(streams.close)
    lease_servers = LeaseServers(
        settings.lease_redis_urls or (settings.redis_url,),
        node_id,
        settings.lease_ttl_s,
        settings.lease_ttl_s * _LEASE_TIMEOUT_SHARE,
    )
    stack.push_async_callback(lease_servers.close)
    members = Members(
        settings.redis_url,
        node_id,
        settings.lease_ttl_s,
        min(settings.redis_timeout_s, settings.lease_ttl_s * _MEMBERS_TIMEOUT_SHARE),
    )
    stack.push_async_callback(members.close)
    statistics = Statistics(settings.redis_url, node_id, settings.redis_timeout_s)
    stack.push_async_callback(statistics.close)
    return Context(
        node_id=node_id,
        options=_options(settings),
        db=databases[0],
        api_db=databases[1],
        streams=streams,
        lease_servers=lease_servers,
        members=members,
        statistics=statistics,
        clock=clock,
        meters=meters,
        layout=layout,
        store=store,
    )


def _options(settings: Settings) -> Options:
    return Options(
        lease_ttl_s=settings.lease_ttl_s,
        lease_renew_s=settings.lease_renew_s,
        horizon_s=settings.horizon_s,
        wheel_cap=settings.wheel_cap,
        sweep_every_s=settings.sweep_every_s,
        claim_ahead_s=settings.claim_ahead_s,
        dispatch_grace_s=settings.dispatch_grace_s,
        window_floor=settings.window_floor,
        idempotency_ttl_s=settings.idempotency_ttl_s,
        retention_s=settings.retention_s,
        archive_before_drop=settings.archive_before_drop,
    )
