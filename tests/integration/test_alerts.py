"""Watched schedules end to end: an alert in the API, in the metrics, in the log and at a webhook."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from event_rig import events
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from scraping import scrape
from store_rig import query
from waiting import wait_for

import duly


class Hook:
    """A webhook that answers as the test wants."""

    def __init__(self) -> None:
        self.status = 200
        self.refuses_type: str | None = None
        self.told: list[dict[str, Any]] = []
        self.refused = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        if (await request.json())["type"] == self.refuses_type:
            return web.Response(status=422)
        if self.status != 200:
            self.refused += 1
            # A redirect must not be followed to where nobody wanted it.
            return web.Response(status=self.status, headers={"Location": "/elsewhere"})
        self.told.append(await request.json())
        return web.Response()

    async def elsewhere(self, _: web.Request) -> web.Response:
        self.told.append({"redirected": True})
        return web.Response()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    found = Hook()
    app = web.Application()
    app.add_routes(
        [web.post("/alerts", found.answer), web.route("*", "/elsewhere", found.elsewhere)]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/alerts"
    yield found
    await runner.cleanup()


@pytest.fixture
async def watching(fresh_database: str, redis_url: str, hook: Hook) -> AsyncIterator[RunningNode]:
    async with running_node(fresh_database, redis_url, alert_webhook_url=hook.url) as running:
        yield running


async def metric(node: RunningNode, kind: str) -> float:
    return (await scrape(node))["duly_open_alerts", kind]


async def test_a_silent_schedule_is_told_everywhere_and_so_is_its_end(
    watching: RunningNode, hook: Hook, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "duly.alerts")
    task = await watching.client.submit("export", schedule=duly.Every(1, expect_within=2))
    await wait_for(lambda: len(hook.told) == 1, 60, "the webhook is told")
    told = hook.told[0]
    assert (told["state"], told["kind"], told["task_id"], told["type"]) == (
        "raised", "silent", str(task.id), "export",
    )  # fmt: skip
    (alert,) = await watching.client.alerts(open=True)
    assert (alert.kind, alert.task_id, alert.cleared_at) == ("silent", task.id, None)
    assert alert.since == task.created_at
    assert alert.details["expect_within"] == 2

    async def counted() -> bool:
        return await metric(watching, "silent") == 1

    await wait_for(counted, 60, "the metric shows it")
    assert [r.message for r in caplog.records if "has completed nothing" in r.message]

    async with HandWorker(redis_url) as worker:
        await worker.live()
        taken = await worker.take()
        await worker.report(taken, result="1")

        def cleared() -> bool:  # it may have gone silent again since, which is another alert
            return any((one["state"], one["id"]) == ("cleared", told["id"]) for one in hook.told)

        await wait_for(cleared, 60, "the webhook is told of the end")
    (over,) = [one for one in await watching.client.alerts(open=False) if one.id == told["id"]]
    assert over.cleared_at is not None


async def test_who_looks_on_hears_of_alerts(node: RunningNode) -> None:
    async with events(node.http, "?type=export") as stream, events(node.http, "?type=b") as other:
        task = await node.client.submit("export", schedule=duly.Every(3600, expect_within=1))
        heard = await stream.until("alert", state="raised")
        assert heard.data["task_id"] == str(task.id)
        assert (heard.data["kind"], heard.data["queue"]) == ("silent", "default")
        await node.client.cancel(task.id)
        cleared = await stream.until("alert", state="cleared")
        assert cleared.data["id"] == heard.data["id"]
        await node.client.submit("b", run_at="2040-01-01T00:00:00Z")
        while (first := await other.next()) is not None and first.name == "stats":
            pass
        assert first is not None
        assert (first.name, first.data["type"]) == ("task", "b")


async def test_a_webhook_that_refuses_is_asked_again_and_is_not_followed_elsewhere(
    watching: RunningNode, hook: Hook
) -> None:
    hook.status = 307
    await watching.client.submit("export", schedule=duly.Every(3600, expect_within=1))
    await wait_for(lambda: hook.refused == 1, 60, "it was asked")
    hook.status = 200

    async def sooner(connection: Any) -> None:  # it would be a minute
        await connection.execute("update alerts set tell_at = raised_at where tell_at is not null")

    async def told() -> bool:
        await watching.context.db.run(sooner)
        return bool(hook.told)

    await wait_for(told, 60, "it is told after all")
    assert hook.told[0]["state"] == "raised"
    assert hook.refused == 1


async def test_an_alert_that_is_refused_holds_up_no_other(
    watching: RunningNode, hook: Hook
) -> None:
    hook.refuses_type = "refused"
    for kind in ("refused", "other"):
        await watching.client.submit(kind, schedule=duly.Every(3600, expect_within=1))
    await wait_for(lambda: hook.told, 60, "the other is told")
    assert [told["type"] for told in hook.told] == ["other"]


async def test_too_many_failures_pause_the_task_and_a_resume_lets_it_go_on(
    watching: RunningNode, hook: Hook, redis_url: str
) -> None:
    schedule = duly.Every(0.2, pause_after=2)
    task = await watching.client.submit("poll", schedule=schedule, max_retries=0)
    async with HandWorker(redis_url) as worker:
        await worker.live()
        for _ in range(2):
            await worker.report(await worker.take(), "failed", error='"no"')

        async def paused() -> bool:
            return (await watching.client.get(task.id)).paused

        await wait_for(paused, 60, "it is paused")
        await wait_for(lambda: len(hook.told) == 1, 60, "the webhook is told")
        assert hook.told[0]["kind"] == "auto_paused"
        (noted,) = (await watching.call("GET", f"/v1/audit?task_id={task.id}&action=pause")).body[
            "items"
        ]
        assert (noted["who"], noted["role"]) == (None, "system")
        await watching.client.resume(task.id)
        await worker.report(await worker.take(), result="1")

        async def cleared() -> bool:
            return not await watching.client.alerts(open=True)

        await wait_for(cleared, 60, "the alert is cleared")


async def test_two_nodes_tell_the_webhook_once(
    fresh_database: str, redis_url: str, hook: Hook
) -> None:
    async with (
        running_node(fresh_database, redis_url, alert_webhook_url=hook.url) as one,
        running_node(
            fresh_database, redis_url, owns_slots=False, alert_webhook_url=hook.url
        ) as other,
    ):
        for n in range(10):
            await one.client.submit(f"t{n}", schedule=duly.Every(3600, expect_within=1))
        await wait_for(lambda: len(hook.told) >= 10, 90, "all are told")

        async def nothing_left() -> bool:
            rows = await query(other.context.db, "select 1 from alerts where tell_at is not null")
            return not rows

        await wait_for(nothing_left, 60, "nothing is left to tell")
        assert len({told["id"] for told in hook.told}) == len(hook.told) == 10


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"every": 60, "expect_within": 0.5}, "expect_within"),
        ({"every": 60, "expect_within": "soon"}, "expect_within"),
        ({"every": 60, "pause_after": 0}, "pause_after"),
        ({"every": 60, "pause_after": 1.5}, "pause_after"),
    ],
)
async def test_a_wrong_watch_is_refused_by_name(
    node: RunningNode, body: dict[str, Any], field: str
) -> None:
    answer = await node.call("POST", "/v1/tasks", {"type": "a", "schedule": body})
    assert answer.status == 422
    assert answer.body["errors"][0]["field"] == f"schedule.{field}"


async def test_alerts_come_in_pages_and_wrong_parameters_are_named(node: RunningNode) -> None:
    ids = [
        (await node.client.submit("t", schedule=duly.Every(3600, expect_within=1))).id
        for _ in range(5)
    ]

    async def raised() -> bool:
        return len(await node.client.alerts()) == 5

    await wait_for(raised, 60, "all are raised")
    first = (await node.call("GET", "/v1/alerts?limit=3")).body
    rest = (await node.call("GET", f"/v1/alerts?limit=3&cursor={first['next_cursor']}")).body
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (3, 2, None)
    found = [one["task_id"] for one in first["items"] + rest["items"]]
    assert sorted(found) == sorted(map(str, ids))
    only = (await node.call("GET", f"/v1/alerts?task_id={ids[2]}&open=true")).body["items"]
    assert [one["task_id"] for one in only] == [str(ids[2])]
    for query_string, field in (
        ("open=yes", "open"), ("task_id=7", "task_id"), ("cursor=x", "cursor"), ("kind=a", "kind"),
    ):  # fmt: skip
        answer = await node.call("GET", f"/v1/alerts?{query_string}")
        assert answer.status == 422, query_string
        assert answer.body["errors"][0]["field"] == field


async def test_a_change_of_what_is_watched_moves_no_occurrence(node: RunningNode) -> None:
    task = await node.client.submit("t", schedule=duly.Every(3600))
    changed = await node.client.update(task.id, schedule=duly.Every(3600, pause_after=4))
    assert changed.next_run_at == task.next_run_at
    assert json.loads(json.dumps(changed.schedule)) == {"every": 3600.0, "pause_after": 4}
    assert [run.outcome for run in await node.client.runs(task.id)] == []
