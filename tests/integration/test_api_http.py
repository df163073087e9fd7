"""HTTP itself: bytes that are not text, requests that are not HTTP, compressed and chunked bodies."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
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


async def exchange(node: RunningNode, request: bytes) -> bytes:
    """Send bytes as they are; answers what comes back until the node closes or says nothing more."""
    parts = urlsplit(node.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(10_000), 60)
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
