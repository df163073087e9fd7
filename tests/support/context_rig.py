"""An actor's context on stores that the test names, for tests of one actor by itself."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from store_rig import opened

from duly.actors.context import Context, Options
from duly.storage import upkeep
from duly.storage.leases import LeaseServers
from duly.storage.members import Members
from duly.storage.statistics import Statistics
from duly.storage.streams import Streams
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us

ME = "node-a"


@asynccontextmanager
async def open_context(
    database_url: str, redis_url: str, *, lease_servers: object = None, **options: Any
) -> AsyncIterator[Context]:
    """What the actors of a node named `ME` share; its clock is measured once."""
    streams = Streams(redis_url, ME, timeout_s=5.0)
    members = Members(redis_url, ME, ttl_s=4.0, timeout_s=5.0)
    statistics = Statistics(redis_url, ME, timeout_s=5.0)
    clock = ClusterClock(time.monotonic)
    try:
        async with opened(database_url) as db:
            sent = clock.monotonic()
            server_us = to_us(await upkeep.server_time(db))
            clock.observe(sent, clock.monotonic(), server_us)
            yield Context(
                node_id=ME,
                options=replace(Options(), **options),
                db=db,
                api_db=db,
                streams=streams,
                lease_servers=cast(LeaseServers, lease_servers),
                members=members,
                statistics=statistics,
                clock=clock,
            )
    finally:
        await statistics.close()
        await members.close()
        await streams.close()
