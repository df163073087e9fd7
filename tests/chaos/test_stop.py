"""How a node ends: in order when asked to, loudly when it cannot go on."""

from pathlib import Path

import pytest
from chaos_rig import Cluster
from processes import Processes
from servers import ServerFactory

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster(make_servers: ServerFactory, processes: Processes, tmp_path: Path) -> Cluster:
    return Cluster(make_servers(), processes, tmp_path)


async def test_sigterm_under_load_drains_the_node(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    old = cluster.node
    assert old.stop() == 0
    assert "crashed" not in old.output
    assert "cancelled" not in old.output  # every actor stopped by itself
    assert await cluster.query("select min(epoch) from slots") > 0
    assert await cluster.query("select count(owner) from slots") == 0  # it let all go
    cluster.start_node()
    await cluster.all_done()


async def test_a_node_that_crashes_again_and_again_gives_up(cluster: Cluster) -> None:
    await cluster.submit(10)
    await cluster.query("alter table tasks rename to elsewhere")
    assert cluster.node.wait(120) == 70
    assert "giving up" in cluster.node.output
    assert "UndefinedTableError" in cluster.node.output
