"""Answers that are not errors."""

import msgspec
from aiohttp import web

from duly.nodes.api import views
from duly.nodes.api.wire import TaskView
from duly.storage.tasks import TaskRow


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
