"""A Redis Cluster of one test's own: primaries, and a replica for those that may die."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from private_valkey import PrivateValkey
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError
from waiting import wait_for

SLOTS = 16_384


class TestCluster:
    """`primaries[n]` has the n-th share of the slots, and `replicas[n]`, if there is one, follows it."""

    __test__ = False

    def __init__(
        self, folder: Path, *, primaries: int = 3, replicas: int = 0, options: Sequence[str] = ()
    ) -> None:
        names = [f"node{n}" for n in range(primaries + replicas)]
        for name in names:
            (folder / name).mkdir()
        whole = (
            *("--cluster-enabled", "yes", "--cluster-node-timeout", "1500"),
            *("--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"),
            *("--cluster-replica-validity-factor", "0"),
            *options,
        )
        # The bus's own default is 10,000 above the port, which may be too high.
        buses = [_free_port() for _ in names]
        servers = [
            PrivateValkey(folder / name, *whole, "--cluster-port", str(bus))
            for name, bus in zip(names, buses, strict=True)
        ]
        self._first_bus = buses[0]
        self.primaries, self.replicas = servers[:primaries], servers[primaries:]
        self.share = SLOTS // primaries

    @property
    def servers(self) -> list[PrivateValkey]:
        """All of them."""
        return self.primaries + self.replicas

    @property
    def url(self) -> str:
        """For nodes and workers; the first server that it names is not there."""
        return f"redis+cluster://127.0.0.1:1,127.0.0.1:{self.primaries[0].port},127.0.0.1:{self.primaries[-1].port}"

    async def start(self) -> None:
        """Start all, and wait until each server knows that the cluster is whole."""
        for server in self.servers:
            server.start()
        count = len(self.primaries)
        for n, server in enumerate(self.primaries):
            last = SLOTS - 1 if n == count - 1 else (n + 1) * self.share - 1
            await command(server, "CLUSTER", "ADDSLOTSRANGE", n * self.share, last)
            await command(server, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for server in self.servers[1:]:
            first = self.primaries[0].port
            await command(server, "CLUSTER", "MEET", "127.0.0.1", first, self._first_bus)
        for server in self.servers:
            await wait_for(partial(self._knows_all, server), 60, "all servers have met")
        for replica, primary in zip(self.replicas, self.primaries, strict=False):
            await command(replica, "CLUSTER", "REPLICATE", await node_id(primary))

        async def whole(server: PrivateValkey) -> bool:
            info = await command(server, "CLUSTER", "INFO")
            return "cluster_state:ok" in str(info) or (
                isinstance(info, dict) and info.get("cluster_state") == "ok"
            )

        for server in self.servers:
            await wait_for(partial(whole, server), 60, "the cluster is whole", ignore=(RedisError,))
        for replica in self.replicas:
            await wait_for(partial(_linked, replica), 60, "a replica follows", ignore=(RedisError,))
        if self.replicas:
            await wait_for(self._lists_replicas, 60, "every server knows the replicas")

    async def _knows_all(self, server: PrivateValkey) -> bool:
        nodes = await command(server, "CLUSTER", "NODES")
        text = str(nodes)
        return all(f":{one.port}" in text for one in self.servers) and "handshake" not in text

    async def _lists_replicas(self) -> bool:
        for server in self.servers:
            slots = await command(server, "CLUSTER SLOTS")
            if sum(len(one) - 3 for one in slots) < len(self.replicas):
                return False
        return True

    def stop(self) -> None:
        """Kill all."""
        for server in self.servers:
            server.stop()

    def place(self, key: str) -> int:
        """Which of the primaries had the key's slot at the start."""
        return min(key_slot(key.encode()) // self.share, len(self.primaries) - 1)

    def queue_on(self, primary: int, name: str = "q") -> str:
        """The name of a queue whose keys are on this primary at the start."""
        return next(f"{name}{n}" for n in range(SLOTS) if self.place(f"{{{name}{n}}}") == primary)

    async def promoted(self, replica: PrivateValkey) -> bool:
        """Whether it is a primary."""
        return bytes((await command(replica, "ROLE"))[0]) == b"master"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def cluster(folder: Path, **options: Any) -> AsyncIterator[TestCluster]:
    """A cluster that has started."""
    made = TestCluster(folder, **options)
    try:
        await made.start()
        yield made
    finally:
        made.stop()


async def node_id(server: PrivateValkey) -> str:
    """By which the others know it."""
    return bytes(await command(server, "CLUSTER", "MYID")).decode()


async def _linked(replica: PrivateValkey) -> bool:
    answer = await command(replica, "INFO", "replication")
    return bool(answer.get("master_link_status") == "up")


async def command(server: PrivateValkey, *words: Any) -> Any:
    """One command on a connection of its own, to this server whatever the key."""
    client = Redis(port=server.port, protocol=2, socket_timeout=10)
    for name in ("CLUSTER", "CLUSTER SLOTS", "CLUSTER INFO"):
        client.set_response_callback(name, lambda response, **_: response)
    async with client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]


async def cut_off(primary: PrivateValkey, replica: PrivateValkey) -> None:
    """From now on the replica hears nothing of what is written, and does not know that it should."""
    await command(replica, "CONFIG", "SET", "masterauth", "wrong")
    await command(primary, "CLIENT", "KILL", "TYPE", "replica")

    async def deaf() -> bool:
        return not await _linked(replica)

    await wait_for(deaf, 60, "the replica is cut off")


async def move_slot(
    key: str, source: PrivateValkey, target: PrivateValkey, others: Sequence[PrivateValkey]
) -> int:
    """Move the slot of a key with all its keys, one by one; answers how many there were."""
    slot, count = key_slot(key.encode()), 0
    await command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", await node_id(source))
    await command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", await node_id(target))
    while names := await command(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
        await command(source, "MIGRATE", "127.0.0.1", target.port, names[0], 0, 5000)
        count += 1
    for server in (target, source, *others):
        await command(server, "CLUSTER", "SETSLOT", slot, "NODE", await node_id(target))
    return count
