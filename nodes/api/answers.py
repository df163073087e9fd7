"""Answers that are not errors."""

import msgspec
from aiohttp import web

from duly.nodes.api import views
from duly.storage.tasks import TaskRow


def task(
    row: TaskRow, status: int = 200, *, location: bool = False, payloads: bool = True
) -> web.Response:
    """A task, with its version as ETag and perhaps where it is found."""
    headers = {"ETag": f'"{row.version}"'}
    if location:
        headers["Location"] = f"/v1/tasks/{row.id}"
    return body(views.task(row, payloads=payloads), status, headers)


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
