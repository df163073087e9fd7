"""Keeps clients that are slow, on purpose or not, from using the API up.

aiohttp closes connections that are idle, but lets a request drip in for ever, and waits for ever for a
client that does not take its answer. So each connection goes through a guard that notes since when
the node has been waiting, and a sweep that ends what has waited too long.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web

ANSWER_S: Final = 60.0
"""A client that takes nothing of its answer for so long is cut off."""

SWEEP_S: Final = 1.0
"""Seconds between sweeps, so how late a connection may be ended."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class Door:
    """Where connections come in: counts them, and ends those that keep the node waiting."""

    def __init__(
        self, most: int, request_s: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`most`: connections open at a time. `request_s`: how long a whole request may take to come."""
        self.monotonic = monotonic
        self._most = most
        self._request_s = request_s
        self._guards: dict[asyncio.Protocol, _Guard] = {}

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._guards)

    def guarded(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A maker of protocols for `create_server`, around those that `make` makes."""
        return lambda: _Guard(self, make())

    def note(self, request: web.Request) -> None:
        """Notes when a request has come whole; goes before all that may wait."""
        guard = self._guards.get(request.protocol)
        if guard is not None:
            request.content.on_eof(guard.request_is_here)

    def sweep(self) -> int:
        """End what has waited too long; return how many connections that were."""
        now_s = self.monotonic()
        late = [guard for guard in self._guards.values() if guard.is_late(now_s, self._request_s)]
        for guard in late:
            guard.abort()
        return len(late)

    def enter(self, inner: asyncio.Protocol, guard: "_Guard") -> bool:
        """Count a new connection; False if there are too many already."""
        if len(self._guards) >= self._most:
            return False
        self._guards[inner] = guard
        return True

    def leave(self, inner: asyncio.Protocol) -> None:
        """A connection is closed."""
        self._guards.pop(inner, None)


class _Guard(asyncio.Protocol):
    """Passes everything on to the protocol inside, and notes since when the client is awaited."""

    def __init__(self, door: Door, inner: asyncio.Protocol) -> None:
        self._door = door
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._refused = False
        self._receiving_since: float | None = None
        self._sending_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._door.enter(self._inner, self):
            self._inner.connection_made(transport)
        else:
            self._refused = True
            self._transport.write(_FULL)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self._inner)
        if not self._refused:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._receiving_since is None:
            self._receiving_since = self._door.monotonic()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._refused else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._sending_since = self._door.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._sending_since = None
        self._inner.resume_writing()

    def request_is_here(self) -> None:
        """The request that was being received has come whole."""
        self._receiving_since = None

    def is_late(self, now_s: float, request_s: float) -> bool:
        """Whether the client has taken too long to send its request, or to take its answer."""
        assert self._transport is not None
        if self._transport.is_closing() and self._sending_since is None:
            self._sending_since = now_s  # what it has not read yet keeps the connection
        return (
            self._receiving_since is not None and now_s - self._receiving_since > request_s
        ) or (self._sending_since is not None and now_s - self._sending_since > ANSWER_S)

    def abort(self) -> None:
        """Close without sending what is left."""
        assert self._transport is not None
        self._transport.abort()
