"""The simulated Redis server: commands, readers that block, channels, loss of its data."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from simulated.faults import Faults, Trace
from simulated.link import Link, NoAnswerError, Server
from simulated.redis_commands import Commands
from simulated.redis_data import CommandError, Words

_WORLD = contextvars.Context()


class Channel:
    """One subscribed connection."""

    def __init__(self, names: Sequence[bytes], link: Link) -> None:
        self.names = frozenset(names)
        self.link = link
        self.broken = False
        self.messages: deque[dict[str, Any]] = deque()
        self.arrival: asyncio.Future[None] | None = None

    def deliver(self, kind: str, data: bytes) -> bool:
        """A message for the subscriber."""
        self.messages.append({"type": kind, "data": data})
        self._wake()
        return True

    def cut(self) -> None:
        """The connection is gone."""
        self.broken = True
        self._wake()

    def _wake(self) -> None:
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(None)


class RedisServer(Server):
    """`commands` holds its data. Pub/sub messages are lost with `lossy_channels` probability."""

    def __init__(self, name: str, faults: Faults, trace: Trace, now_ms: Callable[[], int]) -> None:
        super().__init__(name, faults, trace)
        self.commands = Commands(now_ms)
        self.commands.published = self._publish
        self.commands.added = self._added
        self.lossy_channels = 0.0
        self.on_added: Callable[[bytes, Words], None] = lambda key, words: None
        self._blocked: list[tuple[Words, asyncio.Future[Any]]] = []
        self._channels: list[Channel] = []
        self._serving = False

    def run(self, words: Words) -> Any:
        """One command."""
        return self.commands.run(words)

    # Readers that wait

    def block(self, words: Words, future: "asyncio.Future[Any]", block_s: float) -> None:
        """Answer this XREADGROUP when there is something to read, or nothing after `block_s`."""
        self._blocked.append((words, future))
        loop = asyncio.get_running_loop()
        loop.call_later(block_s, self._end, words, future, context=_WORLD)

    def _end(self, words: Words, future: "asyncio.Future[Any]") -> None:
        self._blocked = [one for one in self._blocked if one[1] is not future]
        if not future.done():
            future.set_result(None)

    def _added(self, key: bytes, words: Words) -> None:
        self.on_added(key, words)
        if self._blocked and not self._serving:
            # After the command, as a server does: a script's entries appear together.
            self._serving = True
            asyncio.get_running_loop().call_soon(self._serve_blocked, context=_WORLD)

    def _serve_blocked(self) -> None:
        self._serving = False
        still = []
        for words, future in self._blocked:
            if future.done():
                continue
            try:
                found = self.commands.run(words)
            except CommandError as error:
                future.set_exception(error)
                continue
            if found is None:
                still.append((words, future))
            else:
                future.set_result(found)
        self._blocked = still

    # Channels

    def subscribe(self, names: Sequence[bytes], link: Link) -> Channel:
        """Hear what is published from now on."""
        channel = Channel(names, link)
        self._channels.append(channel)
        return channel

    def unsubscribe(self, channel: Channel) -> None:
        """Hear no more."""
        if channel in self._channels:
            self._channels.remove(channel)

    def _publish(self, name: bytes, data: bytes) -> int:
        heard = [one for one in self._channels if name in one.names and not one.link.dead]
        for channel in heard:
            if not self.faults.chance(self.lossy_channels):
                channel.deliver("message", data)
        return len(heard)

    # Trouble

    def cut_connections(self) -> None:
        """Whoever waits for something is told that the connection is gone."""
        blocked, self._blocked = self._blocked, []
        for _, future in blocked:
            if not future.done():
                future.set_exception(NoAnswerError())
        channels, self._channels = self._channels, []
        for channel in channels:
            channel.cut()

    def lose_data(self, *, restart: bool) -> None:
        """FLUSHALL, or a restart without persistence."""
        self.commands.flush(restart=restart)
        if restart:
            self.cut_connections()
        else:
            self._serve_blocked()
