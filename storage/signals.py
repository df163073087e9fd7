"""What a node says to other nodes and to a worker, and what it hears: messages that may get lost."""

from contextlib import AbstractAsyncContextManager

from duly.storage import keys
from duly.storage.channel import NextMessage, subscribed
from duly.storage.node_link import NodeLink


class Signals:
    """One node's access to the pub/sub channels. Methods raise `redis.TROUBLE`."""

    def __init__(self, link: NodeLink) -> None:
        self._link = link

    async def wake(self, node_id: str, message: bytes) -> None:
        """Tell another node of tasks that fall into its horizon. May get lost: it sweeps."""
        await self._link.command("PUBLISH", keys.wake(node_id), message)

    async def tell_freed(self, message: bytes) -> None:
        """Tell every node of concurrency keys that may have room. May get lost: they look anyway."""
        await self._link.command("PUBLISH", keys.NODES_FREED, message)

    def wakes(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen on this node's wake channel, and on the one of freed keys."""
        names = (keys.wake(self._link.node_id), keys.NODES_FREED)
        return subscribed(self._link.reader, *names, answer_s=self._link.timeout_s)

    async def tell_events(self, message: bytes) -> None:
        """Send a message of events to whichever nodes have clients that look on."""
        await self._link.command("PUBLISH", keys.EVENTS, message)

    def events(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen to the events of all nodes."""
        return subscribed(self._link.reader, keys.EVENTS, answer_s=self._link.timeout_s)

    async def announce_controls(self) -> None:
        """Tell every node that what is set of a queue has changed. May get lost: they look anyway."""
        await self._link.command("PUBLISH", keys.QUEUES_CHANGED, b"")

    def control_changes(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen for such announcements."""
        return subscribed(self._link.reader, keys.QUEUES_CHANGED, answer_s=self._link.timeout_s)

    async def tell_worker(self, worker_id: str, message: bytes) -> None:
        """Send a control message to one worker, if it listens."""
        await self._link.command("PUBLISH", keys.control(worker_id), message)
