"""The guard of each connection: whom it counts, and whom it takes for too slow."""

import asyncio
from typing import cast

import pytest
from aiohttp import web

from duly.nodes import connections
from duly.nodes.connections import Door


class Wire(asyncio.Transport):
    """A connection to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closing = self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


class Seen(asyncio.Protocol):
    """The protocol inside; notes what reaches it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")

    def data_received(self, data: bytes) -> None:
        self.calls.append(data.decode())

    def eof_received(self) -> bool | None:
        self.calls.append("eof")
        return None

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Rig:
    """A door for two, whose time is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.door = Door(2, 10.0, lambda: self.now_s)
        self.inner: list[Seen] = []

    def connect(self) -> tuple[asyncio.Protocol, Wire]:
        """One more client."""

        def make() -> Seen:
            self.inner.append(Seen())
            return self.inner[-1]

        guard, wire = self.door.guarded(make)(), Wire()
        guard.connection_made(wire)
        return guard, wire

    def request_is_here(self, number: int) -> None:
        """What aiohttp does once it has read a request without a body."""

        class Body:
            def on_eof(self, callback: object) -> None:
                assert callable(callback)
                callback()

        class Request:
            protocol = self.inner[number]
            content = Body()

        self.door.note(cast("web.Request", Request()))

    def ended_at(self, now_s: float) -> int:
        """How many a sweep at this time ends."""
        self.now_s = now_s
        return self.door.sweep()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_everything_is_passed_on(rig: Rig) -> None:
    guard, _ = rig.connect()
    guard.data_received(b"GET")
    guard.pause_writing()
    guard.resume_writing()
    assert guard.eof_received() is None
    guard.connection_lost(None)
    assert rig.inner[0].calls == ["made", "GET", "pause", "resume", "eof", "lost"]
    assert rig.door.open == 0


def test_one_too_many_is_told_so_and_counts_for_nothing(rig: Rig) -> None:
    first, _ = rig.connect()
    rig.connect()
    third, wire = rig.connect()
    assert wire.sent.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in wire.sent
    assert wire.closing
    third.data_received(b"GET")
    third.eof_received()
    third.connection_lost(None)
    assert rig.inner[2].calls == []
    assert rig.door.open == 2
    first.connection_lost(None)
    assert rig.connect()[1].sent == b""


async def test_a_request_must_be_here_in_time_however_it_drips(rig: Rig) -> None:
    guard, wire = rig.connect()
    for _ in range(10):
        guard.data_received(b"x")
        assert rig.ended_at(rig.now_s + 1) == 0
    assert rig.ended_at(110.5) == 1
    assert wire.aborted


async def test_a_connection_without_a_request_is_not_awaited(rig: Rig) -> None:
    guard, wire = rig.connect()
    assert rig.ended_at(1_000) == 0
    guard.data_received(b"GET")
    rig.request_is_here(0)
    assert rig.ended_at(2_000) == 0
    guard.data_received(b"G")
    assert rig.ended_at(2_005) == 0
    assert rig.ended_at(2_011) == 1
    assert wire.aborted


def test_an_answer_must_be_taken(rig: Rig) -> None:
    guard, wire = rig.connect()
    guard.pause_writing()
    assert rig.ended_at(100 + connections.ANSWER_S) == 0
    guard.resume_writing()
    guard.pause_writing()
    assert rig.ended_at(101 + connections.ANSWER_S) == 0
    assert rig.ended_at(101 + 2 * connections.ANSWER_S) == 1
    assert wire.aborted


def test_what_is_left_to_send_keeps_no_connection_open_for_ever(rig: Rig) -> None:
    _, wire = rig.connect()
    wire.close()
    assert rig.ended_at(1_000) == 0
    assert rig.ended_at(1_001 + connections.ANSWER_S) == 1
    assert wire.aborted
