"""Nodes whose wall clocks are an hour ahead and behind: nobody notices."""

import logging

import pytest
from claim_watch import claims_seen, watch_claims
from cluster_rig import NODES, LoadedCluster, now, worst
from processes import Processes
from servers import ServerFactory
from waiting import wait_for

pytestmark = pytest.mark.chaos

log = logging.getLogger("test.wall_clocks")

_HOUR_S = 3600.0
_LATE_S = 10.0  # nobody is in a hurry here; an hour would show


async def test_c20_wall_clocks_an_hour_ahead_and_behind_move_no_task(
    make_servers: ServerFactory, processes: Processes
) -> None:
    skews = {1: _HOUR_S, 2: -_HOUR_S}
    cluster = LoadedCluster(make_servers(), processes, {}, skews)
    await cluster.start()
    await watch_claims(cluster.query)
    for number, skew in skews.items():
        shown = float(cluster.nodes[number].wait_for_line(r"wall clock: (\d+)")[1])
        assert abs(shown - skew - now()) < _HOUR_S / 2
    await cluster.submit_ahead(100, for_s=8)
    async with cluster.live_load(50):

        async def most_are_done() -> bool:
            return await cluster.done() >= 900

        await wait_for(most_are_done, 60, "most are done")
    lags = await cluster.all_done()
    log.warning("%d tasks, worst %.0f ms", len(lags), 1e3 * worst(lags))
    assert worst(lags) < _LATE_S
    assert min(one.lag_s for one in lags) > -0.05  # the clocks are compared over the network
    claims = await claims_seen(cluster.query)
    assert len(claims.owners) == NODES
    assert claims.wrong == []
    assert claims.times == claims.tasks == len(lags)
    assert all("crashed" not in node.output for node in cluster.nodes)
