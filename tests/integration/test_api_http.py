"""HTTP itself: bytes that are not text, requests that are not HTTP, compressed and chunked bodies."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import psutil
from node_rig import RunningNode


async def test_bytes_in_headers_that_are_not_text(node: RunningNode) -> None:
    """They arrive as lone surrogates, which PostgreSQL cannot hold."""
    for header in (b"Idempotency-Key: a\xff", b"If-Match: \xff", b"Authorization: Bearer \xff"):
        head = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        body = b'{"type":"a","run_at":"2040-01-01T00:00:00Z"}'
        tail = b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        answer = await exchange(node, head + header + tail + body)
        status = 422 if header.startswith(b"Idem") else 201
        assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert await node.count() == 2


async def test_malformed_http_is_answered_400(node: RunningNode) -> None:
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for request in (
        b"GARBAGE\r\n\r\n",
        b"GET /v1/tasks?type=%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 20_000),
        b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n" % (b"a" * 20_000),
        head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}",
        head + b"Content-Length: -1\r\n\r\n{}",
        head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ):
        answer = await exchange(node, request)
        assert b" 400 " in answer.partition(b"\r\n")[0], (request[:60], answer)
    assert (await node.call("GET", "/healthz")).status == 200


async def test_the_answer_to_a_submission_is_the_same_on_a_connection_that_is_kept(
    node: RunningNode,
) -> None:
    """There it is written as it is, elsewhere put together by aiohttp."""
    body = b'{"type":"a","run_at":"2040-01-01T00:00:00Z"}'
    answers = []
    for version, more in ((b"1.1", b""), (b"1.1", b"Connection: close\r\n"), (b"1.0", b"")):
        head = b"POST /v1/tasks HTTP/%s\r\nHost: x\r\nContent-Type: application/json\r\n" % version
        request = head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body
        # On the kept one two at once, of which the second ends it.
        last = request if more or version == b"1.0" else request + ending(request)
        head, _, rest = (await exchange(node, last, -1)).partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        content = rest[: int(headers["Content-Length"])]
        task = json.loads(content)
        assert headers.pop("Location") == f"/v1/tasks/{task['id']}"
        assert parsedate_to_datetime(headers.pop("Date")).tzinfo is not None
        headers.pop("Connection", None)
        headers.pop("Content-Length")
        if last is not request:
            assert rest[len(content) :].startswith(b"HTTP/1.1 201 Created\r\n")
        answers.append((status.partition(" ")[2], headers, set(task)))
    assert answers[0][0] == "201 Created"
    assert answers[0] == answers[1] == answers[2]


def ending(request: bytes) -> bytes:
    """The same request, as the last one of its connection."""
    return request.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")


async def exchange(node: RunningNode, request: bytes, most: int = 10_000) -> bytes:
    """Send bytes as they are; answers what comes back first, or if `most` is -1 until the node closes."""
    parts = urlsplit(node.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(most), 60)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_c49_compressed_bodies_are_refused_before_they_unfold(node: RunningNode) -> None:
    process = psutil.Process()
    packed = zlib.compressobj(9, wbits=31)
    block = packed.compress(b'{"type":"a","payload":"') + packed.compress(b"x" * (1 << 26))
    bomb = block + b"".join(packed.compress(b"x" * (1 << 26)) for _ in range(7)) + packed.flush()
    small = gzip.compress(b'{"type":"a"}')
    before = process.memory_info().rss
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"):
        for body in (small, bomb):  # the second unfolds to half a gigabyte
            answer = await node.call("POST", "/v1/tasks", body, {"Content-Encoding": encoding})
            assert answer.status == 415, encoding
            batch = await node.call("POST", "/v1/tasks/batch", body, {"Content-Encoding": encoding})
            assert batch.status == 415, encoding
    assert process.memory_info().rss - before < 64 << 20
    assert await node.count() == 0


async def test_c49_chunked_bodies_are_measured_as_they_come(node: RunningNode) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"type":"a","payload":"'
        for _ in range(80):
            yield b"x" * 65_536
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    async with node.http.post("/v1/tasks", data=chunks(), headers=headers) as answer:
        assert answer.status == 413
    headers["Content-Encoding"] = "gzip"
    async with node.http.post("/v1/tasks", data=chunks(), headers=headers) as answer:
        assert answer.status == 415
    assert await node.count() == 0
