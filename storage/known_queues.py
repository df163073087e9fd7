"""The queues that every node knows: their names, and the groups of their streams."""

from duly.storage import keys
from duly.storage.node_link import NodeLink
from duly.storage.redis import PrimaryAwayError, text


class KnownQueues:
    """One node's access. Methods raise `redis.TROUBLE`."""

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self._announced: set[str] = set()
        self._announced_reports: set[str] = set()
        self._names: set[str] = set()
        self._unlisted: set[str] = set()
        self.has_new = False
        """A queue has been announced; whoever reads reports takes note, and sets it back."""

    async def names(self) -> set[str]:
        """Every queue that any node has published to.

        While the primary of a cluster is away that has the names: those that are known.
        """
        try:
            for queue in list(self._unlisted):
                await self._list(queue)
            self._names = {text(name) for name in await self._link.command("SMEMBERS", keys.QUEUES)}
        except PrimaryAwayError:
            if not self._names | self._unlisted:
                raise
        return self._names | self._unlisted

    async def _list(self, queue: str) -> None:
        try:
            await self._link.command("SADD", keys.QUEUES, queue)
            self._unlisted.discard(queue)
        except PrimaryAwayError:
            # The queue's own keys may be elsewhere; its name is told once that is possible.
            self._unlisted.add(queue)

    async def is_known(self, queue: str) -> bool:
        """Whether it is one of these now."""
        return bool(await self._link.command("SISMEMBER", keys.QUEUES, queue))

    async def announce(self, queue: str) -> None:
        """Make a queue known to every node, and its groups."""
        await self._list(queue)
        await self._link.make_group(keys.reports(queue), self._link.group)
        await self._link.make_group(keys.tasks(queue), keys.WORKERS_GROUP)
        self.has_new = self.has_new or queue not in self._announced
        self._announced.add(queue)

    async def announce_once(self, queue: str) -> None:
        """As `announce`, unless this node has done so before."""
        if queue not in self._announced:
            await self.announce(queue)

    async def announce_reports(self, queue: str) -> None:
        """As `announce`, unless that was done before; the reports can be read whatever the tasks."""
        # Only once: Redis without memory refuses it, and reading reports is what makes room.
        if queue not in self._announced and queue not in self._announced_reports:
            await self._list(queue)
            await self._link.make_group(keys.reports(queue), self._link.group)
            self._announced_reports.add(queue)

    async def check(self, queue: str) -> None:
        """`announce`, and raise if something of another type is in the place of any of its keys."""
        await self.announce(queue)
        for name in (
            keys.inflight(queue), keys.entries(queue), keys.waiting(queue), keys.rate(queue),
            keys.waiting_for_rate(queue),
        ):  # fmt: skip
            await self._link.command("HLEN", name)

    async def forget(self, queue: str) -> bool:
        """Remove a queue's name and keys if it is empty and has no worker; answers whether it was.

        The name goes first: who finds the keys gone looks whether it is there. A publication that comes in
        between makes everything anew.
        """
        await self._link.command("SREM", keys.QUEUES, queue)
        names = [keys.tasks(queue), keys.reports(queue), keys.inflight(queue), keys.entries(queue)]
        args = [keys.WORKERS_GROUP, keys.MARK]
        if not await self._link.scripts.run("forget_queue", names, args):
            await self._link.command("SADD", keys.QUEUES, queue)
            return False
        self.forget_announced(queue)
        return True

    def forget_announced(self, queue: str | None = None) -> None:
        """Redis lost its data, or those of one queue: the groups have to be made anew."""
        for announced in (self._announced, self._announced_reports):
            if queue is None:
                announced.clear()
            else:
                announced.discard(queue)
