"""One node's connections to Redis, and what the parts of its side of the conveyor share."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from redis.exceptions import ResponseError

from duly.storage import keys
from duly.storage.cluster_reads import ClusterReads
from duly.storage.redis import Scripts, call, connect_any, text
from duly.storage.redis_cluster import ClusterClient


class NodeLink:
    """Two connections: one for what is answered at once, one for what waits. Methods raise `redis.TROUBLE`."""

    def __init__(
        self,
        url: str,
        node_id: str,
        timeout_s: float,
        *,
        store: int = 0,
        holds: Callable[[UUID], bool] | None = None,
    ) -> None:
        """`holds`: of several stores, whether a task is in this one, `store`; None: there is only one."""
        self.node_id = node_id
        self.group = keys.nodes_group(store)
        self.holds = holds
        self.timeout_s = timeout_s
        self.client = connect_any(url, name=f"duly-{node_id}")
        self.reads: ClusterReads | None = None
        self.reader = self.client
        if isinstance(self.client, ClusterClient):
            self.reads = ClusterReads(self.client, timeout_s)
        else:
            self.reader = connect_any(url, name=f"duly-{node_id}-read")
        self.scripts = Scripts(self.client, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        if self.reads is not None:
            await self.reads.aclose()
        await self.client.aclose()
        await self.reader.aclose()

    async def command(self, *words: Any) -> Any:
        """Run one command on the first connection."""
        return await call(self.client, *words, timeout_s=self.timeout_s)

    async def make_group(self, stream: str, group: str) -> None:
        """Make a consumer group, and its stream, unless it is there."""
        try:
            await self.command("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def settle(
        self,
        stream: str,
        group: str,
        queue: str,
        items: Iterable[tuple[bytes, str | bytes, str | bytes]],
    ) -> None:
        """Take entries (entry id, task id, token) out of `stream`, and out of the queue what they settle."""
        args: list[str | bytes] = [group, keys.WORKERS_GROUP]
        for item in items:
            args += item
        keys_ = [stream, keys.inflight(queue), keys.entries(queue), keys.tasks(queue)]
        await self.scripts.run("settle", keys_, args)

    def is_own(self, task_id: bytes | None) -> bool:
        """Whether it is a task of this store; also what is no id: whoever reads it first removes it."""
        if self.holds is None or task_id is None:
            return True
        try:
            return self.holds(UUID(text(task_id)))
        except ValueError:
            return True
