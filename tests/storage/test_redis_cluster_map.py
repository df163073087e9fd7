"""The map of a Redis Cluster: which server is asked for it, when, and servers that do not tell their names."""

import pytest
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import MovedError
from redis_cluster import TestCluster, command
from waiting import wait_for

from duly.storage.channel import subscribed
from duly.storage.redis import TROUBLE, call
from duly.storage.redis_cluster import ClusterClient

WAIT_S = 60


async def test_servers_are_asked_for_the_map_in_turn(
    servers: TestCluster, client: ClusterClient
) -> None:
    """One that is cut off from the others goes on telling the old one."""

    async def all_asked() -> bool:
        client.map.note_stale()
        await client.map.refresh()
        stats = [await command(server, "INFO", "commandstats") for server in servers.primaries]
        return all("cmdstat_cluster|slots" in one for one in stats)

    await wait_for(all_asked, WAIT_S, "all are asked")


async def test_servers_that_do_not_tell_their_address_are_where_they_were_found(
    servers: TestCluster, client: ClusterClient
) -> None:
    setting = "cluster-preferred-endpoint-type"
    for server in servers.primaries:
        await command(server, "CONFIG", "SET", setting, "unknown-endpoint")
    known = {one.name for one in await client.map.servers()}
    assert known == {f"127.0.0.1:{one.port}" for one in servers.primaries}
    for n in range(3):
        await call(client, "SET", servers.queue_on(n), "1", timeout_s=5)


async def test_a_redirection_by_another_name_leads_to_the_same_connections(
    servers: TestCluster, client: ClusterClient
) -> None:
    known = {int(one.port): one for one in await client.map.servers()}
    port = servers.primaries[1].port
    by = ClusterNode("127.0.0.1", servers.primaries[0].port)
    assert client.map.redirected(MovedError(f"5 localhost:{port}"), by) is known[port]
    assert client.map.redirected(MovedError(f"5 :{by.port}"), by) is known[int(by.port)]


async def test_a_subscription_that_fails_has_the_map_asked_for(
    servers: TestCluster, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, *rest = servers.primaries
    monkeypatch.setattr(
        "random.choice", lambda those: next(o for o in those if o[0].endswith(f":{gone.port}"))
    )
    await client.map.primaries()
    gone.stop()

    async def asked() -> int:
        count = 0
        for server in rest:
            stats = await command(server, "INFO", "commandstats")
            count += stats.get("cmdstat_cluster|slots", {"calls": 0})["calls"]
        return count

    before = await asked()

    async def anew() -> bool:
        with pytest.raises(TROUBLE):
            async with subscribed(client, "channel", answer_s=5):
                pass
        return await asked() > before

    await wait_for(anew, WAIT_S, "the map is asked for")
