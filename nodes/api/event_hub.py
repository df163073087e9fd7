"""One subscription to the events of all nodes, shared by the clients of this node that look on.

It is there while there is a client. Each client has a queue of its own; one that does not keep up loses
events, and is told how many.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from duly.actors.broadcaster import AlertEvent, Event, decoder
from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.api")

QUEUE_MAX: Final = 2_000
"""Lines that may wait for one client."""

STATS_EVERY_S: Final = 2.0
"""Seconds between events that tell how the cluster does."""

_SILENCE_S: Final = 10.0

Wants = Callable[[Event | AlertEvent], bool]

Newest = Callable[[], Coroutine[Any, Any, list[bytes]]]
"""Makes the JSON of one or more events."""


class Line(NamedTuple):
    """One event as it is sent."""

    name: str
    data: bytes

    def encode(self) -> bytes:
        """In the format of an event stream; JSON has no line breaks."""
        return b"event: %b\ndata: %b\n\n" % (self.name.encode(), self.data)


class Client:
    """What waits for one client."""

    def __init__(self, wants: Wants, name: str | None = None) -> None:
        """`name`: of its token."""
        self.wants = wants
        self.name = name
        self._lines: deque[Line] = deque()
        self._left_out = 0
        self._some = asyncio.Event()
        self.closed = False

    def put(self, line: Line) -> None:
        """Have it sent, if there is room."""
        if len(self._lines) < QUEUE_MAX:
            self._lines.append(line)
        else:
            self._left_out += 1
        self._some.set()

    def leave_out(self, count: int) -> None:
        """So many events were lost on their way."""
        if count:
            self._left_out += count
            self._some.set()

    def close(self) -> None:
        """There will be no more."""
        self.closed = True
        self._some.set()

    async def lines(self, wait_s: float) -> list[Line]:
        """What waits; none if there is nothing for so long."""
        try:
            async with asyncio.timeout(wait_s):
                await self._some.wait()
        except TimeoutError:
            return []
        self._some.clear()
        taken = list(self._lines)
        self._lines.clear()
        if self._left_out:
            taken.append(Line("dropped", msgspec.json.encode({"count": self._left_out})))
            self._left_out = 0
        return taken


class EventHub:
    """The clients of this node, and the subscription that feeds them."""

    def __init__(self, context: Context, newest: Newest) -> None:
        """`newest`: makes what is told every `STATS_EVERY_S` of how the cluster does."""
        self._context = context
        self._newest = newest
        self._patience = Patience("listening for events", log)
        self._clients: set[Client] = set()
        self._working: list[asyncio.Task[None]] = []
        self._state: Line | None = None  # not known before the subscription has been tried

    @property
    def clients(self) -> int:
        """How many look on."""
        return len(self._clients)

    def clients_of(self, name: str) -> int:
        """How many look on with the token of this name."""
        return sum(client.name == name for client in self._clients)

    @contextmanager
    def client(self, wants: Wants, name: str | None) -> Iterator[Client]:
        """A place for one client, with the token `name`, while it looks on."""
        client = Client(wants, name)
        self._clients.add(client)
        self._context.feed.listeners = len(self._clients)
        if not self._working:
            parts = (self._hear, self._tell_stats)
            self._working = [asyncio.create_task(self._guarded(part)) for part in parts]
        elif self._state is not None:
            client.put(self._state)
        try:
            yield client
        finally:
            self._clients.discard(client)
            self._context.feed.listeners = len(self._clients)
            if not self._clients:
                self._end_work()

    def _end_work(self) -> None:
        for task in self._working:
            if task is not asyncio.current_task():
                task.cancel()
        self._working, self._state = [], None

    def close(self) -> None:
        """Let all clients go: the node stops."""
        for client in self._clients:
            client.close()

    async def _guarded(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await part()
        except Exception:
            log.exception("sending events to clients failed")
            self._end_work()  # whoever comes next begins it anew, also while others are on their way out
            self.close()  # they come again

    async def _hear(self) -> None:
        """Goes on whatever happens to Redis; the clients are told."""
        while True:
            try:
                async with self._context.streams.signals.events() as next_message:
                    self._patience.worked()
                    self._tell_state(None)
                    while True:
                        self._pass_on(await next_message(_SILENCE_S))
            except TROUBLE as error:
                pause_s = self._patience.failed(error)
                self._tell_state(str(error) or type(error).__name__)
                await asyncio.sleep(pause_s)

    async def _tell_stats(self) -> None:
        while True:
            lines = [Line("stats", point) for point in await self._newest()]
            for client in self._clients:
                for line in lines:
                    client.put(line)
            await asyncio.sleep(STATS_EVERY_S)

    def _tell_state(self, trouble: str | None) -> None:
        state = {"live": trouble is None, "detail": trouble}
        self._state = Line("state", msgspec.json.encode(state))
        for client in self._clients:
            client.put(self._state)

    def _pass_on(self, raw: bytes | None) -> None:
        if raw is None:
            return
        try:
            message = decoder.decode(raw)
        except msgspec.DecodeError as error:
            log.warning("an unreadable message of events: %s", error)
            return
        told = (("task", message.events), ("alert", message.alerts))
        lines = [
            (event, Line(name, msgspec.json.encode(event)))
            for name, events in told
            for event in events
        ]
        for client in self._clients:
            for event, line in lines:
                if client.wants(event):
                    client.put(line)
            client.leave_out(message.left_out)
