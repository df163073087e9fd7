"""A server of a Redis Cluster that a plain URL names: what calls, lease servers and `duly doctor` say of it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from private_valkey import PrivateValkey
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis_cluster import TestCluster, command, node_id

from duly.storage import checkup, keys
from duly.storage.conveyor import Conveyor
from duly.storage.leases import LeaseServers
from duly.storage.members import Members
from duly.storage.redis import TROUBLE, InsideClusterError, Scripts, call, connect, is_of_one_queue
from duly.storage.redis_errors import inside_cluster


@pytest.fixture
async def plain(started: TestCluster) -> AsyncIterator[Redis]:
    """A client of the first primary alone."""
    made = connect(started.primaries[0].url, name="test")
    yield made
    await made.aclose()


@pytest.fixture
def lonely(tmp_path: Path, unused_port: int) -> Iterator[PrivateValkey]:
    """A server in cluster mode that has no slots and knows no other."""
    bus = ("--cluster-port", str(unused_port))
    made = PrivateValkey(tmp_path, "--cluster-enabled", "yes", *bus)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MovedError("9928 127.0.0.1:48681"), "MOVED 9928 127.0.0.1:48681"),
        (AskError("9928 127.0.0.1:48681"), "ASK 9928 127.0.0.1:48681"),
        (ClusterCrossSlotError("Keys in request"), "CROSSSLOT Keys in request"),
        (ClusterDownError("CLUSTERDOWN Hash slot"), "CLUSTERDOWN Hash slot"),
        (TryAgainError(), "TRYAGAIN"),
    ],
)
def test_what_only_a_server_of_a_cluster_answers(error: ResponseError, said: str) -> None:
    found = inside_cluster(error)
    assert found is not None
    assert found.said == said
    assert "one of a Redis Cluster" in str(found)
    assert f"({said})" in str(found)
    assert "redis+cluster://" in str(found)
    assert isinstance(found, TROUBLE)
    assert not is_of_one_queue(found)


@pytest.mark.parametrize(
    "error",
    [MasterDownError("Link with MASTER is down"), ReadOnlyError("no"), ResponseError("WRONGTYPE")],
)
def test_what_other_servers_answer_too(error: ResponseError) -> None:
    assert inside_cluster(error) is None


async def test_calls_and_scripts_say_so_whatever_the_server_answers(
    started: TestCluster, plain: Redis
) -> None:
    here, there = started.queue_on(0), started.queue_on(1)
    await call(plain, "SET", here, "1", timeout_s=5)
    with pytest.raises(InsideClusterError, match=r"MOVED .* name the cluster by redis\+cluster://"):
        await call(plain, "GET", there, timeout_s=5)
    with pytest.raises(InsideClusterError, match="CROSSSLOT"):
        await call(plain, "MGET", here, there, timeout_s=5)
    with pytest.raises(InsideClusterError, match="MOVED"):
        await Scripts(plain, 5).run("drop_entries", [keys.inflight(there), keys.entries(there)], ["id"])  # fmt: skip
    source, target, _ = started.primaries
    moving = started.queue_on(0, "moving")
    await command(source, "CLUSTER", "SETSLOT", key_slot(moving.encode()), "MIGRATING", await node_id(target))  # fmt: skip
    with pytest.raises(InsideClusterError, match="ASK"):
        await call(plain, "GET", moving, timeout_s=5)
    await command(source, "CLUSTER", "SETSLOT", key_slot(moving.encode()), "STABLE")


async def test_nodes_and_workers_that_use_it_get_the_same(started: TestCluster) -> None:
    url = started.primaries[0].url
    members, conveyor = Members(url, "node-a", 4, 5), Conveyor(url, "w")
    try:
        with pytest.raises(InsideClusterError):
            await members.beat(b"{}")
        with pytest.raises(InsideClusterError):
            await conveyor.create_group(started.queue_on(1))
        with pytest.raises(InsideClusterError):
            await conveyor.read([started.queue_on(n) for n in range(3)], 1, 100)
    finally:
        await conveyor.close()
        await members.close()


async def test_a_cluster_url_goes_on_as_it_did(started: TestCluster) -> None:
    members = Members(started.url, "node-a", 4, 5)
    try:
        assert await members.beat(b"{}") == {"node-a"}
    finally:
        await members.close()


async def test_of_three_lease_servers_one_is_of_a_cluster(
    started: TestCluster, redis_url: str, unused_port: int
) -> None:
    urls = [redis_url, started.primaries[0].url, f"redis://127.0.0.1:{unused_port}"]
    servers = LeaseServers(urls, "a", 60, 5)
    try:
        assert servers.inside_cluster is None
        held = await servers.take([1, 2])
        assert (held.servers_answered, held.slots) == (1, frozenset())
        said = servers.inside_cluster
        assert said is not None
        assert said.startswith("lease server 1 is one of a Redis Cluster (")
        assert said.endswith("): name servers of their own in lease_redis_urls")
        assert said.count("lease server ") == 1
    finally:
        await servers.close()


async def test_a_server_that_has_met_no_cluster_yet_says_so_too(lonely: PrivateValkey) -> None:
    client = connect(lonely.url, name="test")
    try:
        with pytest.raises(InsideClusterError, match="CLUSTERDOWN"):
            await call(client, "GET", "key", timeout_s=5)
    finally:
        await client.aclose()


async def test_a_lease_server_that_leaves_cluster_mode_is_one_like_others(
    lonely: PrivateValkey,
) -> None:
    servers = LeaseServers([lonely.url], "a", 60, 5)
    try:
        assert (await servers.take([1])).servers_answered == 0
        assert "CROSSSLOT" in str(servers.inside_cluster)
        assert (await servers.holders([1])) is None
        lonely.stop()
        assert (await servers.take([1])).servers_answered == 0
        assert servers.inside_cluster is not None, "no answer says nothing else"
        lonely._options = ()
        lonely.start()
        assert (await servers.take([1])).servers_answered == 1
        assert servers.inside_cluster is None
    finally:
        await servers.close()


@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        ({"redis_mode": "cluster"}, True),
        ({"redis_mode": "standalone", "cluster_enabled": 1}, True),
        ({"redis_mode": "standalone", "cluster_enabled": 0}, False),
        ({}, False),
    ],
)
def test_what_info_tells_of_a_cluster(info: dict[str, object], wanted: bool) -> None:
    assert checkup.is_inside_cluster(info) is wanted


@pytest.mark.parametrize(
    ("streams", "words"), [(True, "redis+cluster://"), (False, "lease_redis_urls, outside")]
)
async def test_doctor_says_what_to_do(started: TestCluster, streams: bool, words: str) -> None:
    url = started.primaries[0].url
    found, run_id = await checkup.redis(url, "it", streams=streams)
    (bad,) = [one for one in found if one.level == "bad"]
    assert "one of a Redis Cluster" in bad.said
    assert words in str(bad.advice)
    assert run_id is None, "it is of no use to a majority"
    (majority,) = checkup.leases([run_id])
    assert (majority.level, majority.said) == ("bad", "0 of 1 can be used, 1 have to")
