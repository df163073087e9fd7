"""Servers that want to hold a worker up, fill it, or fool it: clear outcomes, bounded memory and time."""

import asyncio
import socket
import ssl
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from delivery_rig import LOOPBACK, deliver
from hostile_server import Got, Hostile, Play, answers, hostile, redirects

from duly.contrib import http
from duly.contrib.http import ConnectionFailedError, DeadlineError, RefusedError

MEGABYTE = 1_048_576
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """No server may make the worker hold much; what is sent without an end is much more."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * MEGABYTE


def pours(head: bytes, piece: bytes, pause_s: float = 0) -> Callable[[Hostile], Play]:
    """An answer that begins with `head` and goes on without an end."""

    def make(server: Hostile) -> Play:
        async def play(got: Got, writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            await server.pour(writer, piece, pause_s)

        return play

    return make


def says(data: bytes, *, reset: bool = False) -> Callable[[Hostile], Play]:
    """Exactly these bytes, then the end of the connection."""

    def make(server: Hostile) -> Play:
        async def play(got: Got, writer: asyncio.StreamWriter) -> None:
            writer.write(data)
            await writer.drain()
            if reset:
                await asyncio.sleep(0.05)  # lest the data be thrown away with the connection
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

        return play

    return make


async def test_ten_gigabytes_are_not_read() -> None:
    length = b"Content-Length: 10737418240\r\n\r\n"
    async with hostile(pours(HEAD + length, b"x" * 65_536)) as server:
        result = await deliver(f"http://127.0.0.1:{server.port}/", deadline=300)
    assert (result["status"], result["truncated"]) == (200, True)
    assert result["body"] == "x" * 4_096
    assert server.sent < 50 * MEGABYTE  # what fits the buffers on the way


async def test_an_endless_body_in_chunks_is_not_read() -> None:
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    async with hostile(pours(head, b"4000\r\n" + b"y" * 0x4000 + b"\r\n")) as server:
        result = await deliver(f"http://127.0.0.1:{server.port}/", deadline=300)
    assert (result["body"], result["truncated"]) == ("y" * 4_096, True)


async def test_a_gzip_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(50)) + packer.flush()
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with hostile(says(HEAD + head + bomb)) as server:
        result = await deliver(f"http://127.0.0.1:{server.port}/")
    assert server.got[0].headers["accept-encoding"] == "identity"
    assert (result["status"], result["body"]) == (200, None)


async def test_what_is_said_to_be_packed_is_not_even_tried() -> None:
    packed = b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nno zip"
    async with hostile(says(HEAD + packed)) as server:
        result = await deliver(f"http://127.0.0.1:{server.port}/")
    assert (result["status"], result["body"]) == (200, None)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEAD + b"Content-Length: 100000\r\n\r\n", b"z"),  # a body
        (HEAD + b"A: ", b"a"),  # a header
        (HEAD[:5], b"1"),  # a status line
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"e"),  # an extension of a chunk
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),  # answers before the answer
    ],
    ids=["body", "header", "status", "chunk", "early"],
)
async def test_slow_drip_ends_at_the_deadline(head: bytes, piece: bytes) -> None:
    async with hostile(pours(head, piece, pause_s=0.05)) as server:
        with pytest.raises((DeadlineError, ConnectionFailedError)) as caught:
            await deliver(f"http://127.0.0.1:{server.port}/", deadline=0.6)
    if isinstance(caught.value, DeadlineError):
        assert str(caught.value) == "127.0.0.1 had not answered in full after 0.6 s"


async def test_a_server_that_says_nothing_ends_at_the_deadline() -> None:
    def make(server: Hostile) -> Play:
        async def play(got: Got, writer: asyncio.StreamWriter) -> None:
            await server.pour(writer, b"", pause_s=0.05)

        return play

    async with hostile(make) as server:
        with pytest.raises(DeadlineError):
            await deliver(f"http://127.0.0.1:{server.port}/", deadline=0.5)


async def test_redirects_share_one_deadline() -> None:
    def make(server: Hostile) -> Play:
        async def play(got: Got, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.5)
            place = f"http://127.0.0.1:{server.port}/"
            writer.write(
                f"HTTP/1.1 307 X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
            )

        return play

    async with hostile(make) as server:
        with pytest.raises(DeadlineError):
            await deliver(f"http://127.0.0.1:{server.port}/", deadline=1.2, redirects=10)
        assert len(server.got) <= 3


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEAD, b"X-%d: y\r\n" % 1 * 100),
        (HEAD + b"A: ", b"a" * 4_096),
        (b"HTTP/1.1 ", b"2" * 4_096),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"f" * 4_096),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"T: t\r\n" * 500),
    ],
    ids=["many", "long", "status", "size", "trailers"],
)
async def test_endless_lines_are_cut(head: bytes, piece: bytes) -> None:
    async with hostile(pours(head, piece)) as server:
        with pytest.raises(ConnectionFailedError, match=r"did not answer in HTTP|broke") as caught:
            await deliver(f"http://127.0.0.1:{server.port}/", deadline=300)
    assert len(str(caught.value)) < 500


async def test_what_is_no_http_is_said_to_be_none() -> None:
    async with hostile(says(b"SSH-2.0-OpenSSH_9.9\r\n")) as server:
        with pytest.raises(ConnectionFailedError, match="did not answer in HTTP"):
            await deliver(f"http://127.0.0.1:{server.port}/")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_end_before_the_answer_is_a_failure_and_one_request(method: str) -> None:
    """Idempotent methods too: the next request is the task's next attempt."""
    async with hostile(says(b"")) as server:
        with pytest.raises(
            ConnectionFailedError, match=r"the connection to 127\.0\.0\.1:\d+ broke"
        ):
            await deliver(f"http://127.0.0.1:{server.port}/", method=method)
        assert len(server.got) == 1


@pytest.mark.parametrize("reset", [True, False])
async def test_an_end_in_the_middle_of_the_body_is_a_failure(reset: bool) -> None:
    async with hostile(says(HEAD + b"Content-Length: 10\r\n\r\nabc", reset=reset)) as server:
        with pytest.raises(ConnectionFailedError, match=r"the answer of .* broke off|broke"):
            await deliver(f"http://127.0.0.1:{server.port}/")


async def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailedError, match="cannot be connected to"):
            await deliver(f"http://127.0.0.1:{taken.getsockname()[1]}/")


# TLS


def certificate(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def test_a_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    async with hostile(answers(), tls=certificate(authority, "127.0.0.1")) as server:
        with pytest.raises(ConnectionFailedError, match=r"the certificate of .* is not good"):
            await deliver(f"https://127.0.0.1:{server.port}/")
        assert server.got == []


async def test_a_certificate_of_another_host_is_refused(
    authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    settings = http.Settings(allow_networks=LOOPBACK, ca_file=str(ca_file))
    async with hostile(answers(), tls=certificate(authority, "example.org")) as server:
        with pytest.raises(ConnectionFailedError, match=r"the certificate of .* is not good"):
            await deliver(f"https://127.0.0.1:{server.port}/", settings=settings)
        assert server.got == []
    async with hostile(answers(body=b"ok"), tls=certificate(authority, "127.0.0.1")) as server:
        result = await deliver(f"https://127.0.0.1:{server.port}/", settings=settings)
        assert result["body"] == "ok"


async def test_a_server_without_tls_is_no_https() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailedError, match=r"TLS with 127\.0\.0\.1"):
            await deliver(f"https://127.0.0.1:{port}/")


async def test_a_redirect_from_https_to_http_is_refused(
    authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    settings = http.Settings(allow_networks=LOOPBACK, ca_file=str(ca_file))
    tls = certificate(authority, "127.0.0.1")
    async with hostile(answers()) as plain:
        leads = redirects(to=f"http://127.0.0.1:{plain.port}/")
        async with hostile(leads, tls=tls) as server:
            with pytest.raises(RefusedError, match="redirects from https to http"):
                await deliver(f"https://127.0.0.1:{server.port}/", settings=settings)
        assert plain.got == []
