"""Tasks with `on_lost = fail`: they run only after a node has granted the start."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker, starts


class StartApi:
    """Answers starts with the statuses given, then with the last of them."""

    def __init__(self) -> None:
        self.answers = [200]
        self.questions: list[dict[str, Any]] = []
        self.hold: asyncio.Event | None = None
        app = web.Application()
        app.router.add_post("/v1/tasks/{id}/start", self._start)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/"))

    async def _start(self, request: web.Request) -> web.Response:
        self.questions.append(
            {
                "id": request.match_info["id"],
                "authorization": request.headers.get("Authorization"),
                **await request.json(),
            }
        )
        if self.hold is not None:
            await self.hold.wait()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.json_response({}, status=status)


@pytest.fixture
async def api() -> AsyncIterator[StartApi]:
    made = StartApi()
    await made.server.start_server()
    yield made
    await made.server.close()


def make(node: FakeNode, api: StartApi | None, *, plain: bool = False) -> tuple[Worker, list[str]]:
    worker = Worker(node.url, id="w1", api=api.url if api else None, token="secret")
    ran: list[str] = []

    def work(ctx: Context) -> str:
        ran.append(ctx.id)
        return "done"

    async def work_async(ctx: Context) -> str:
        return work(ctx)

    worker.task("t")(work if plain else work_async)
    return worker, ran


@pytest.mark.parametrize("plain", [False, True])
async def test_a_granted_start_runs(node: FakeNode, api: StartApi, plain: bool) -> None:
    worker, ran = make(node, api, plain=plain)
    async with running(worker):
        task_id = await node.dispatch("t", token=7, confirm="1")
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert ran == [task_id]
    assert (report.outcome, report.value) == ("completed", "done")
    (question,) = api.questions
    assert question == {
        "id": task_id,
        "authorization": "Bearer secret",
        "token": 7,
        "start_id": question["start_id"],
        "worker": "w1",
    }


async def test_what_must_not_begin_twice_is_not_given_back_by_a_stop(
    node: FakeNode, api: StartApi
) -> None:
    worker = Worker(node.url, id="w1", api=api.url, token="secret", drain_timeout_s=0)
    begun = asyncio.Event()

    @worker.task("t")
    async def held(ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running(worker):
        await node.dispatch("t", confirm="1")
        await asyncio.wait_for(begun.wait(), 60)
    (report,) = await node.reports()
    assert (report.outcome, report.retry, report.value["type"]) == ("failed", "1", "worker_stopped")


async def test_a_refused_start_is_dropped(node: FakeNode, api: StartApi) -> None:
    api.answers = [409]
    worker, ran = make(node, api)
    async with running(worker):
        await node.dispatch("t", confirm="1")
        await until(lambda: len(api.questions) == 1)
        await node.empty()
    assert ran == []
    assert await node.reports() == []


async def test_a_start_without_clear_answer_is_asked_again_under_the_same_id(
    node: FakeNode, api: StartApi
) -> None:
    api.answers = [503, 500, 200]
    worker, ran = make(node, api)
    async with running(worker):
        await node.dispatch("t", confirm="1")
        await node.wait_reports(1)
    assert len(ran) == 1
    assert len(api.questions) == 3
    assert len({question["start_id"] for question in api.questions}) == 1


async def test_a_start_that_is_never_answered_is_given_back_when_the_time_is_up(
    node: FakeNode, api: StartApi
) -> None:
    api.answers = [503]
    worker, ran = make(node, api)
    async with running(worker):
        await node.dispatch("t", confirm="1", timeout="0.3")
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert ran == []
    assert (report.outcome, report.delay) == ("snoozed", "5")


async def test_an_unreachable_node_is_asked_again(
    node: FakeNode, api: StartApi, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ran = make(node, api)
    await api.server.close()
    async with running(worker):
        await node.dispatch("t", confirm="1", timeout="2")
        (report,) = await node.wait_reports(1)
    assert ran == []
    assert (report.outcome, report.delay) == ("snoozed", "5")
    assert len([m for m in caplog.messages if "confirm a start fails" in m]) == 1


async def test_the_asking_ends_long_before_a_long_timeout(
    node: FakeNode, api: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "ASKING_S", 0.3)
    api.answers = [503]
    worker, ran = make(node, api)
    async with running(worker):
        await node.dispatch("t", confirm="1", timeout="86400")
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert ran == []
    assert (report.outcome, report.delay) == ("snoozed", "5")
    assert len({question["start_id"] for question in api.questions}) == 1


async def test_without_a_node_to_ask_it_is_given_back(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ran = make(node, None)
    async with running(worker):
        await node.dispatch("t", confirm="1")
        await node.dispatch("t", confirm="1")
        reports = await node.wait_reports(2)
        await node.empty()
    assert ran == []
    assert {(report.outcome, report.delay) for report in reports} == {("snoozed", "5")}
    assert len([m for m in caplog.messages if "no `api` to ask" in m]) == 1


async def test_a_start_still_open_at_the_stop_is_given_back_at_once(
    node: FakeNode, api: StartApi
) -> None:
    api.hold = asyncio.Event()
    worker, ran = make(node, api)
    async with running(worker):
        await node.dispatch("t", confirm="1")
        await until(lambda: len(api.questions) == 1)
    (report,) = await node.reports()
    api.hold.set()
    assert ran == []
    assert (report.outcome, report.delay) == ("snoozed", "0")
