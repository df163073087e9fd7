"""The node's part over HTTP: answers whether an attempt may start, as a rule would have it."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from aiohttp import web


class Question(NamedTuple):
    """One request to start an attempt."""

    task_id: str
    body: dict[str, Any]


class Starts:
    """Remembers every question; `answers` are the statuses to give next, after them 200."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.answers: list[int] = []
        self.url = ""

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """What was asked about one task, oldest first."""
        return [asked.body for asked in self.questions if asked.task_id == task_id]

    async def answer(self, request: web.Request) -> web.Response:
        """`POST /v1/tasks/{id}/start`."""
        try:
            body = json.loads(await request.text())
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return web.json_response({"title": "not a JSON object"}, status=400)
        self.questions.append(Question(request.match_info["id"], body))
        status = self.answers.pop(0) if self.answers else 200
        return web.json_response({}, status=status)


@contextlib.asynccontextmanager
async def listening(host: str) -> AsyncIterator[Starts]:
    """Answer on any port that is free."""
    starts = Starts()
    app = web.Application()
    app.router.add_post("/v1/tasks/{id}/start", starts.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        starts.url = f"http://{host}:{runner.addresses[0][1]}"
        yield starts
    finally:
        await runner.cleanup()
