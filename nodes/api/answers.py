"""Answers that are not errors."""

from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from duly.nodes.api import views
from duly.nodes.api.replies import TaskView
from duly.storage.tasks import TaskRow

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""On every answer, for browsers that were led here; one that has a policy of its own has all its own."""


def task(
    row: TaskRow, status: int = 200, *, location: bool = False, payloads: bool = True
) -> web.Response:
    """A task, with its version as ETag and perhaps where it is found."""
    return view(views.task(row, payloads=payloads), status, location=location)


def view(task: TaskView, status: int, *, location: bool = False) -> web.Response:
    """The same of a task as it is shown."""
    headers = {"ETag": f'"{task.version}"'}
    if location:
        headers["Location"] = f"/v1/tasks/{task.id}"
    return body(task, status, headers)


def body(
    value: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Any value as JSON."""
    return web.Response(
        status=status,
        body=views.encoder.encode(value),
        content_type="application/json",
        headers=headers,
    )


def created(request: web.Request, task: TaskView, now_us: int) -> web.StreamResponse:
    """201 with a task that was made just now, by the time `now_us`."""
    if request.version != HttpVersion11 or not request.keep_alive:
        return view(task, 201, location=True)
    content = views.encoder.encode(task)
    own = b"Location: /v1/tasks/%b\r\nContent-Length: %d\r\n\r\n" % (
        str(task.id).encode(),
        len(content),
    )
    return _Whole(HTTPStatus.CREATED, _same_for_all(now_us // 1_000_000) + own + content)


@lru_cache(maxsize=2)
def _same_for_all(now_s: int) -> bytes:
    headers = {
        "Content-Type": "application/json", "ETag": '"0"', "Date": formatdate(now_s, usegmt=True),
        "Server": "duly", **HEADERS,
    }  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    status = HTTPStatus.CREATED
    return f"HTTP/1.1 {status:d} {status.phrase}\r\n{lines}".encode()


class _Whole(web.StreamResponse):
    """An answer that is written at once as it is, on a connection that is kept.

    For the most frequent one: to collect its headers one by one takes longer than all the rest of it.
    """

    def __init__(self, status: HTTPStatus, whole: bytes) -> None:
        super().__init__(status=status, reason=status.phrase)
        self._bytes = whole
        self._to: AbstractStreamWriter | None = None

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return True

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Find where to write."""
        self._to = request.writer
        return self._to

    async def write_eof(self, data: bytes = b"") -> None:
        """Write all of it."""
        assert self._to is not None
        await self._to.write(self._bytes)
