"""Nodes that come and go in order under load, one after the other: no task waits for them."""

import logging

import pytest
from cluster_rig import NODES, LoadedCluster, now, p99, worst
from processes import Processes
from servers import ServerFactory

pytestmark = pytest.mark.chaos

log = logging.getLogger("test.rolling_restart")

_PER_S = 100
_TTL_S = 10.0  # whoever waits for leases to run out is late
_LATE_S = 5.0  # 1 is promised; others may be at work on this machine


async def test_a_rolling_restart_delays_no_task(
    make_servers: ServerFactory, processes: Processes
) -> None:
    cluster = LoadedCluster(make_servers(), processes, {"DULY_LEASE_TTL_S": str(_TTL_S)})
    await cluster.start()
    await cluster.submit_ahead(_PER_S, for_s=20)
    async with cluster.live_load(_PER_S):
        for number in range(NODES):
            async with cluster.spared(number):
                moved = await cluster.slots_of(await cluster.node_id(number))
                began = now()
                assert cluster.nodes[number].stop() == 0
                await cluster.shared_by(NODES - 1)
                handed_over = await cluster.handed_over_after(moved, began)
                log.warning("handed over %d slots in %.0f ms", len(moved), 1e3 * handed_over)
                assert handed_over < _LATE_S
                cluster.restart(number)
                await cluster.shared_by(NODES)
    lags = await cluster.all_done()
    log.warning(
        "%d tasks, lag p99 %.0f ms, worst %.0f ms", len(lags), 1e3 * p99(lags), 1e3 * worst(lags)
    )
    assert worst(lags) < _LATE_S
    assert all(one.lag_s >= -0.001 for one in lags)  # nor was one early
