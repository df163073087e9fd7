"""kill -9 of each part in the middle of 1,000 tasks: all end completed, each recorded once."""

import shutil
from pathlib import Path

import pytest
from chaos_rig import Cluster
from processes import Processes
from servers import ServerFactory

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster(make_servers: ServerFactory, processes: Processes, tmp_path: Path) -> Cluster:
    return Cluster(make_servers(), processes, tmp_path)


async def test_kill_9_of_the_node(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.node.kill9()
    cluster.start_node()
    await cluster.all_done()


async def test_kill_9_of_the_worker(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    killed = cluster.worker
    killed.kill9()
    cluster.start_worker()
    await cluster.all_done()
    lost = await cluster.query(
        f"select count(*) from runs where outcome = 'lost' and worker like '%-{killed.pid}-%'"
    )
    assert 0 < lost <= 20  # what it ran at that moment, and no more


async def test_kill_9_of_the_node_and_the_worker(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.worker.kill9()
    cluster.node.kill9()
    cluster.start_node()
    cluster.start_worker()
    await cluster.all_done()


async def test_kill_9_of_postgresql(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.servers.postgres.kill9()
    cluster.servers.revive(cluster.servers.postgres)
    await cluster.all_done()
    assert cluster.node.exit_code is None
    assert "crashed" not in cluster.node.output


async def test_kill_9_of_valkey(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.servers.valkey.kill9()
    cluster.servers.revive(cluster.servers.valkey)
    await cluster.all_done()
    assert cluster.node.exit_code is None
    assert "crashed" not in cluster.node.output


async def test_c33_kill_9_of_valkey_and_loss_of_its_data(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.servers.valkey.kill9()
    shutil.rmtree(cluster.servers.valkey.data / "appendonlydir")
    cluster.servers.revive(cluster.servers.valkey)
    await cluster.all_done()
    assert "crashed" not in cluster.node.output


async def test_kill_9_of_both_servers(cluster: Cluster) -> None:
    await cluster.submit()
    await cluster.in_the_middle()
    cluster.servers.postgres.kill9()
    cluster.servers.valkey.kill9()
    cluster.servers.revive(cluster.servers.valkey)
    cluster.servers.revive(cluster.servers.postgres)
    await cluster.all_done()
    assert "crashed" not in cluster.node.output
