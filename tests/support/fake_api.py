"""A small HTTP API that follows the contract as far as the client's tests need it."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Trouble = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Called before (or after) a request is served; may answer in its place."""


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> web.Response:
    """Return an error as the contract has it."""
    body = {"type": "about:blank", "title": "t", "status": status, "detail": detail, **more}
    return web.Response(
        status=status,
        text=json.dumps(body),
        content_type="application/problem+json",
        headers=headers,
    )


class FakeApi:
    """Keeps tasks in memory; `before` and `after` are lists of troubles, used up one by one."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.queues: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        self.connections: set[int] = set()
        self.before: list[Trouble] = []
        self.after: list[Trouble] = []
        self.raw_payload: str | None = None
        self.errors_max = 1000
        app = web.Application(middlewares=[self._watch])
        app.router.add_post("/v1/tasks", self._submit)
        app.router.add_post("/v1/tasks/batch", self._batch)
        app.router.add_get("/v1/tasks", self._list)
        app.router.add_get("/v1/tasks/{id}", self._get)
        app.router.add_patch("/v1/tasks/{id}", self._patch)
        app.router.add_post("/v1/tasks/{id}/cancel", self._cancel)
        app.router.add_post("/v1/tasks/{id}/retry", self._retry)
        for name in ("pause", "resume", "run-now"):
            app.router.add_post(f"/v1/tasks/{{id}}/{name}", self._note)
        app.router.add_get("/v1/tasks/{id}/runs", self._runs)
        app.router.add_get("/v1/tasks/{id}/explain", self._explain)
        app.router.add_get("/v1/nodes", self._nodes)
        app.router.add_get("/v1/workers", self._workers)
        app.router.add_get("/v1/queues", self._queues)
        app.router.add_get("/v1/queues/{queue}", self._queue)
        app.router.add_put("/v1/queues/{queue}", self._queue)
        app.router.add_post("/v1/bulk", self._bulk)
        app.router.add_get("/v1/bulk", self._bulk_jobs)
        app.router.add_get("/v1/bulk/{id}", self._bulk_job)
        app.router.add_post("/v1/bulk/{id}/stop", self._bulk_job)
        app.router.add_get("/v1/tasks/{id}/ledger", self._occurrences)
        app.router.add_get("/v1/ledger", self._verdicts)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        """Base URL."""
        return str(self.server.make_url(""))

    @web.middleware
    async def _watch(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path_qs, body, dict(request.headers)))
        self.connections.add(id(request.transport))
        if self.before:
            answer = await self.before.pop(0)(request)
            if answer is not None:
                return answer
        served = await handler(request)
        if self.after:
            answer = await self.after.pop(0)(request)
            if answer is not None:
                return answer
        return served

    def add(self, body: dict[str, Any]) -> dict[str, Any]:
        """Store a task as a submission does."""
        task = {
            "id": str(uuid.uuid4()),
            "status": "pending",
            "queue": "default",
            "version": 1,
            "payload": None,
            "created_at": "2026-11-29T12:00:00.000001Z",
            **body,
        }
        self.tasks[task["id"]] = task
        return task

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        key = body.get("idempotency_key")
        if key in self.keys:
            return self._answer(self.tasks[self.keys[key]])
        task = self.add(body)
        if key:
            self.keys[key] = task["id"]
        return self._answer(task, 201)

    async def _batch(self, request: web.Request) -> web.Response:
        body = await request.json()
        known = [
            {"field": f"tasks[{at}].id", "message": f"there is a task with the id {task['id']}"}
            for at, task in enumerate(body["tasks"])
            if task.get("id") in self.tasks
        ]
        if known:
            return problem(409, "nothing was stored", errors=known[: self.errors_max])
        return self._json({"ids": [self.add(task)["id"] for task in body["tasks"]]}, 201)

    async def _list(self, request: web.Request) -> web.Response:
        found = list(reversed(self.tasks.values()))
        if status := request.query.get("status"):
            found = [task for task in found if task["status"] == status]
        return self._page(request, found)

    async def _get(self, request: web.Request) -> web.Response:
        task = self.tasks.get(request.match_info["id"])
        return problem(404, "no such task") if task is None else self._answer(task)

    async def _patch(self, request: web.Request) -> web.Response:
        task = self.tasks[request.match_info["id"]]
        wanted = request.headers.get("If-Match")
        if wanted not in (None, f'"{task["version"]}"'):
            return problem(412, "the task has changed")
        task |= await request.json()
        task["version"] += 1
        return self._answer(task)

    async def _cancel(self, request: web.Request) -> web.Response:
        task = self.tasks[request.match_info["id"]]
        if task["status"] == "cancelled":
            return problem(409, "the task has finished")
        task["status"] = "cancelled"
        return self._answer(task)

    async def _retry(self, request: web.Request) -> web.Response:
        task = self.tasks[request.match_info["id"]]
        task["status"] = "pending"
        return self._answer(task)

    async def _note(self, request: web.Request) -> web.Response:
        task = self.tasks[request.match_info["id"]]
        task["paused"] = request.path.endswith("/pause")
        return self._answer(task)

    async def _runs(self, request: web.Request) -> web.Response:
        task_id = request.match_info["id"]
        runs = [
            {"task_id": task_id, "outcome": "failed", "attempt": n, "token": n, "error": {"n": n}}
            for n in range(250, 0, -1)
        ]
        return self._page(request, runs)

    async def _explain(self, request: web.Request) -> web.Response:
        task = self.tasks.get(request.match_info["id"])
        if task is None:
            return problem(404, "no such task")
        at = "2026-11-29T12:00:00Z"
        reasons = [
            {"code": "not_due", "message": "It is not due.", "due": at, "later": 1.5},
            {"code": "no_worker", "message": "No live worker.", "queue": "default"},
        ]
        return self._json(
            {"task_id": task["id"], "status": task["status"], "at": at, "reasons": reasons}
        )

    async def _nodes(self, _: web.Request) -> web.Response:
        started = "2026-11-29T12:00:00.000001Z"
        old = {"id": "old", "host": "a", "pid": 1, "slots": 128, "started_at": started}
        new = {
            **old, "id": "new", "version": "9", "redis": False, "postgres": True, "future": [],
            "wheel_entries": 5, "ready_entries": 0, "lease_age_s": 0.5, "clock_offset_s": -0.001,
        }  # fmt: skip
        return self._json({"items": [old, new], "next_cursor": None})

    async def _workers(self, _: web.Request) -> web.Response:
        quiet = {"id": "other", "concurrency": 1, "held": 2, "seen_s": 3.5, "queues": None}
        told = {
            "id": "sdk", "host": "b", "pid": 2, "queues": ["mail", "x"], "concurrency": 50,
            "running": 3, "held": 4, "sdk": "duly-python/9", "seen_s": 0.5,
        }  # fmt: skip
        return self._json({"items": [quiet, told], "next_cursor": None})

    async def _queues(self, request: web.Request) -> web.Response:
        return self._page(request, [self.queues[name] for name in sorted(self.queues)])

    async def _queue(self, request: web.Request) -> web.Response:
        name = request.match_info["queue"]
        queue = self.queues.setdefault(name, {"queue": name, "paused": False, "workers": 2})
        if request.method == "PUT":
            queue |= await request.json()
        return self._json(queue)

    async def _bulk(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked.get("dry_run"):
            sample = list(self.tasks.values())[:10]
            return self._json({"count": 12_345, "exact": False, "sample": sample})
        now = "2026-11-29T12:00:00Z"
        job = {"id": str(uuid.uuid4()), "rate": 500, **asked, "status": "running", "total": 3,
               "exact": True, "done": 0, "refused": 0, "created_at": now, "updated_at": now,
               "finished_at": None, "error": None}  # fmt: skip
        self.jobs[job["id"]] = job
        return self._json(job, 202)

    async def _bulk_jobs(self, request: web.Request) -> web.Response:
        return self._page(request, list(self.jobs.values())[::-1])

    async def _bulk_job(self, request: web.Request) -> web.Response:
        """Whoever looks for the second time finds it ended."""
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return problem(404, "no such job")
        if request.method == "POST":
            job |= {"status": "stopping"}
        elif job["done"]:
            job |= {"status": "done", "done": 3, "finished_at": job["updated_at"]}
        else:
            job |= {"done": 1}
        return self._json(job)

    async def _occurrences(self, request: web.Request) -> web.Response:
        task_id = request.match_info["id"]
        run = {"task_id": task_id, "outcome": "lost", "attempt": 1, "token": 7, "error": "lost"}
        rejected = {"token": 7, "outcome": "completed", "worker": "w", "reason": "stale attempt",
                    "received_at": "2026-11-29T12:00:05Z", "error": None, "times": 3}  # fmt: skip
        plain: dict[str, Any] = {"verdict": "skipped", "reason": "paused", "through": None, "attempts": [],
                 "rejected": [], "recorded_at": "2026-11-29T12:00:04Z"}  # fmt: skip
        items = [
            {**plain, "occurrence": f"2026-11-29T{n // 60:02}:{n % 60:02}:00Z"}
            for n in range(149, -1, -1)
        ]
        items[0] |= {"verdict": None, "reason": None, "attempts": [run], "rejected": [rejected]}
        items[1] |= {"reason": "ended", "through": "2026-11-29T12:00:00Z"}
        return self._page(request, items)

    async def _verdicts(self, request: web.Request) -> web.Response:
        items = [
            {"task_id": str(uuid.UUID(int=n)), "type": "t", "queue": "q", "verdict": "rejected",
             "reason": "stale attempt", "outcome": "failed", "worker": "w", "error": {"n": n},
             "occurrence": "2026-11-29T12:00:00Z", "recorded_at": "2026-11-29T12:00:01Z"}
            for n in range(150)
        ]  # fmt: skip
        return self._page(request, items)

    def _page(self, request: web.Request, found: list[dict[str, Any]]) -> web.Response:
        start, size = int(request.query.get("cursor", "0")), int(request.query["limit"])
        more = start + size < len(found)
        cursor = str(start + size) if more else None
        return self._json({"items": found[start : start + size], "next_cursor": cursor})

    def _answer(self, task: dict[str, Any], status: int = 200) -> web.Response:
        if self.raw_payload is None:
            return self._json(task, status)
        text = json.dumps({**task, "payload": "@"}).replace('"@"', self.raw_payload)
        return web.Response(status=status, text=text, content_type="application/json")

    def _json(self, body: Any, status: int = 200) -> web.Response:
        return web.Response(status=status, text=json.dumps(body), content_type="application/json")


async def hang_up(request: web.Request) -> None:
    """Cut the connection: the answer is lost."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)


def refuse(status: int, **headers: str) -> Trouble:
    """Answer with an error instead."""

    async def answer(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return problem(status, "not now", named)

    return answer
