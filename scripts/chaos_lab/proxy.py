"""TCP links between the parts of a cluster, to be made slow, cut, or half open.

A link listens on a port of its own and hands on to the first of its servers that answers. What it
does to traffic can be changed at any time:

    passing     hands on at once
    slow        hands on everything after `delay_s`, in order, in both directions
    cut         connections are reset, new ones too
    swallowing  half open: connections stay, and nothing arrives, not even that the other end is gone;
                they stay dead when the link is healed, as after a lost route; new ones then work
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset
_CONNECT_S: Final = 2.0


class Link:
    """One listening port and what lies behind it."""

    def __init__(self, name: str, servers: Sequence[int], *, spread: bool = False) -> None:
        """`servers`: ports on 127.0.0.1. `spread`: connections go to them in turn."""
        self.name = name
        self.port = 0
        self.delay_s = 0.0
        self.swallowing = False
        self.cut = False
        self._servers = list(servers)
        self._spread = spread
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()

    async def open(self) -> None:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pair(self).near, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more, and reset what is open."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """Reset every connection."""
        for pair in list(self._pairs):
            pair.reset()

    def break_off(self) -> None:
        """Cut the link: until healed, every connection is reset."""
        self.cut = True
        self.reset()

    def swallow(self) -> None:
        """Leave every connection half open, also those that come until the link is healed."""
        self.swallowing = True
        for pair in self._pairs:
            pair.dead = True

    def heal(self) -> None:
        """Pass again."""
        self.delay_s, self.swallowing, self.cut = 0.0, False, False

    def servers(self) -> list[int]:
        """The ports to try, in order."""
        if self._spread:
            self._turn += 1
        at = self._turn % len(self._servers)
        return self._servers[at:] + self._servers[:at]

    def joined(self, pair: "_Pair") -> None:
        """A connection has come."""
        self._pairs.add(pair)
        pair.dead = self.swallowing

    def left(self, pair: "_Pair") -> None:
        """A connection has ended on both sides."""
        self._pairs.discard(pair)


class _Pair:
    """A connection: its near end, and the far one once it is there."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.dead = False
        self.near = _End(self)
        self.far = _End(self)
        self._connecting: asyncio.Task[None] | None = None

    def opened(self) -> None:
        """The near end is there: look for a server."""
        self.link.joined(self)
        if self.link.cut:
            self.reset()
            return
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        for port in self.link.servers():
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_S):
                    await loop.create_connection(lambda: self.far, "127.0.0.1", port)
                self.near.drain()
                return
        self.reset()

    def other(self, end: "_End") -> "_End":
        """The opposite end."""
        return self.far if end is self.near else self.near

    def reset(self) -> None:
        """End it on both sides, rudely."""
        if self._connecting is not None:
            self._connecting.cancel()
        for end in (self.near, self.far):
            end.reset()
        self.link.left(self)

    def ended(self, end: "_End") -> None:
        """One end was closed by its peer. On a dead connection the other one never learns of it."""
        other = self.other(end)
        if end is self.near or not self.dead:
            other.close_after_rest()
        if self.near.closed and self.far.closed:
            self.link.left(self)


class _End(asyncio.Protocol):
    """One socket; `waiting` holds what is to go out of the *other* end, with when."""

    def __init__(self, pair: _Pair) -> None:
        self._pair = pair
        self._transport: Any = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        """Asyncio's: the socket is open."""
        self._transport = transport
        if self is self._pair.near:
            self._pair.opened()

    def data_received(self, data: bytes) -> None:
        """Asyncio's: hand on, later, or never."""
        pair = self._pair
        if pair.dead:
            return
        other = pair.other(self)
        if not self._waiting and not pair.link.delay_s and other.is_open:
            other.write(data)
            return
        now = asyncio.get_running_loop().time()
        self._waiting.append((now + pair.link.delay_s, data))
        self._arm()

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio's: the socket is gone."""
        self.closed = True
        self._pair.ended(self)

    def pause_writing(self) -> None:
        """Asyncio's: our peer reads slowly, so read slowly from its peer."""
        other = self._pair.other(self)
        if other.is_open:
            other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Asyncio's: go on."""
        other = self._pair.other(self)
        if other.is_open:
            other._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        """Whether one can write into it."""
        return self._transport is not None and not self.closed and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send."""
        self._transport.write(data)

    def drain(self) -> None:
        """Hand on what is due."""
        self._timer = None
        other = self._pair.other(self)
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0][0] <= now and other.is_open:
            _, data = self._waiting.popleft()
            if not self._pair.dead:
                other.write(data)
        self._arm()
        if not self._waiting and self._closing and other.is_open:
            other._transport.close()

    def _arm(self) -> None:
        other = self._pair.other(self)
        if self._waiting and self._timer is None and other.is_open:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self.drain)

    def close_after_rest(self) -> None:
        """The other end's peer has closed: close this one after what is still on its way to it."""
        source = self._pair.other(self)
        source._closing = True
        if source._waiting and self.is_open:
            source._arm()
        elif self._transport is not None and not self.closed:
            self._transport.close()
        else:
            self.closed = True

    def reset(self) -> None:
        """End it so that its peer sees a reset."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None and not self.closed:
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _RESET
                )
            self._transport.abort()
        self.closed = True
