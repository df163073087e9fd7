"""A master, a replica and Sentinels of one test's own."""

from pathlib import Path
from typing import Any

from private_valkey import PrivateValkey
from redis.asyncio import Redis
from redis.exceptions import RedisError
from waiting import wait_for

SERVICE = "duly-test"


class SentinelSetup:
    """`servers[0]` begins as the master."""

    def __init__(self, folder: Path, sentinels: int = 3) -> None:
        self.servers = [PrivateValkey(folder / name) for name in ("one", "two")]
        self._sentinels = [
            PrivateValkey(folder / f"sentinel{n}", str(folder / f"sentinel{n}.conf"), "--sentinel")
            for n in range(sentinels)
        ]
        self._folder = folder

    @property
    def url(self) -> str:
        """For nodes and workers; its first Sentinel is one that is not there."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self._sentinels)
        return f"redis+sentinel://127.0.0.1:1,{hosts}/{SERVICE}/0"

    async def start(self) -> None:
        """Start all, and wait until a failover is possible."""
        master, replica = self.servers
        for one in ("one", "two", *(f"sentinel{n}" for n in range(len(self._sentinels)))):
            (self._folder / one).mkdir()
        for server in self.servers:
            server.start()
        await command(replica.url, "REPLICAOF", "127.0.0.1", master.port)
        for number, sentinel in enumerate(self._sentinels):
            (self._folder / f"sentinel{number}.conf").write_text(
                f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} {len(self._sentinels)}\n"
                f"sentinel down-after-milliseconds {SERVICE} 2000\n"
                f"sentinel failover-timeout {SERVICE} 6000\n"
            )
            sentinel.start()

        async def linked() -> bool:
            answer = await command(replica.url, "INFO", "replication")
            return answer["master_link_status"] == "up"  # type: ignore[no-any-return]

        await wait_for(linked, 60, "the replica follows")
        for sentinel in self._sentinels:

            async def knows(url: str = sentinel.url) -> bool:
                others = await command(url, "SENTINEL", "SENTINELS", SERVICE)
                replicas = await command(url, "SENTINEL", "REPLICAS", SERVICE)
                return len(others) == len(self._sentinels) - 1 and len(replicas) == 1

            await wait_for(knows, 60, "the Sentinels know everybody", poll_s=0.1)

    async def fail_over(self) -> None:
        """By command, while the master is up; returns when the other one is master."""

        async def ordered() -> bool:
            await command(self._sentinels[0].url, "SENTINEL", "FAILOVER", SERVICE)
            return True

        await wait_for(ordered, 60, "a failover is possible", ignore=(RedisError,), poll_s=0.2)
        await wait_for(
            lambda: is_master(self.servers[1]), 60, "the replica is promoted", ignore=(RedisError,)
        )

    def stop(self) -> None:
        """Kill all."""
        for one in (*self._sentinels, *self.servers):
            one.stop()


async def is_master(server: PrivateValkey) -> bool:
    """Whether it says so."""
    answer = await command(server.url, "ROLE")
    return bytes(answer[0]) == b"master"


async def command(url: str, *words: Any) -> Any:
    """One command on a connection of its own."""
    async with Redis.from_url(url, protocol=2, socket_timeout=10) as client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]
