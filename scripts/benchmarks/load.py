"""Requests over kept connections, at the least cost to the machine that is being measured.

An ordinary HTTP client takes as much of the processor for a request as the node does for its answer,
and on the same cores: what is measured would be the client.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

_TIMEOUT_S = 60.0


async def post(url: str, body: Mapping[str, object], count: int, connections: int) -> list[float]:
    """POST `body` `count` times over so many connections, each of which waits for its answer.

    Answers how long each took, in milliseconds. Raises RuntimeError if an answer is not 201.
    """
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 80
    content = json.dumps(body).encode()
    head = (
        f"POST {urlsplit(url).path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    took_ms: list[float] = []
    ends: list[asyncio.Future[None]] = []
    for _ in range(connections):
        one = _Connection(head.encode() + content, count // connections, took_ms)
        await loop.create_connection(partial(_same, one), host, port)
        ends.append(one.end)
    async with asyncio.timeout(_TIMEOUT_S):
        await asyncio.gather(*ends)
    return took_ms


def _same(connection: "_Connection") -> "_Connection":
    return connection


class _Connection(asyncio.Protocol):
    def __init__(self, request: bytes, count: int, took_ms: list[float]) -> None:
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._left = count
        self._took_ms = took_ms
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, blank, content = self._answer.partition(b"\r\n\r\n")
        if not blank or len(content) < _length(head):
            return
        self._took_ms.append((time.perf_counter() - self._began) * 1000)
        if not head.startswith(b"HTTP/1.1 201 "):
            self._finish(RuntimeError(self._answer.decode(errors="replace")))
            return
        self._answer = b""
        self._left -= 1
        if self._left:
            self._send()
        else:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or RuntimeError("the node closed the connection"))

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def _finish(self, error: Exception | None) -> None:
        self._transport.close()
        if self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise RuntimeError(f"no length: {head!r}")
