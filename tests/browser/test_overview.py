"""The views of the whole cluster: overview, due load, schedules, alerts; and why a task does not run."""

import asyncio
import re
from datetime import timedelta

import pytest
from browser_rig import Site
from node_rig import RunningNode
from playwright.async_api import Locator, Page, Request, Route, expect
from waiting import wait_for

from duly.wheel.durations import from_us

FAR = "2040-01-01T00:00:00Z"


async def _latest(page: Page, chart: str, line: str) -> str:
    """What a chart says in words of its last point."""
    said = await page.get_by_role("img", name=chart).get_attribute("aria-label")
    assert said is not None
    return next(part.split(f"{line} ")[1] for part in said.split(", ") if f"{line} " in part)


async def _hide(page: Page, hidden: str) -> None:
    """Put the page out of sight (`true`), or back (`false`): that closes its stream, and opens it anew."""
    await page.evaluate(
        f"""() => {{
            Object.defineProperty(document, "hidden", {{ get: () => {hidden}, configurable: true }});
            document.dispatchEvent(new Event("visibilitychange"));
        }}"""
    )


def _streams(page: Page) -> list[str]:
    """The streams that the page opens from now on."""
    opened: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith("/v1/events"):
            opened.append(request.url)

    page.on("request", note)
    return opened


async def test_a_chart_goes_on_by_itself(guarded: RunningNode, admin: Site) -> None:
    page = await admin.open("/admin", role="read")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    charts = page.locator(".chart canvas")
    await expect(charts).to_have_count(4)
    lag = page.get_by_role("img", name="Firing lag")
    await expect(lag).to_have_attribute(
        "aria-label", "Firing lag of the last hour; now p50 –, p95 –, p99 –"
    )
    drawn = await lag.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    # No request of the page brings the point: the stream does.
    await page.route("**/v1/stats/series*", lambda route: route.abort())

    async def is_told() -> bool:
        # Once more each time: it tells of the minute that runs, which may be another one now.
        await guarded.running_task("mail.send")
        return await _latest(page, "Firing lag", "p50") != "–"

    await wait_for(is_told, 60, "the chart tells of a task", poll_s=1)
    assert await lag.locator("canvas").evaluate("canvas => canvas.toDataURL()") != drawn


async def test_the_overview_counts(guarded: RunningNode, admin: Site) -> None:
    await guarded.client.submit("mail.send", queue="mails", run_at=FAR)
    page = await admin.open("/admin", role="read")
    queues = page.get_by_role("table", name="Tasks by queue")
    await expect(queues).to_contain_text("mails")
    await page.get_by_role("link", name="pending").click()
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    assert page.url.endswith("/admin/tasks?status=pending")
    await expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", [1280, 360])
async def test_the_counts_of_a_large_store_fit(
    guarded: RunningNode, admin: Site, width: int
) -> None:
    stats = (await guarded.call("GET", "/v1/stats")).body
    counts = {"pending": 10_234_567, "running": 999_999, "completed": 99_999_999, "failed": 12_345}
    stats["counts"] |= {"by_status": counts, "exact": False}
    page = await admin.open("/admin/audit", role="read", width=width)
    await page.route("**/v1/stats", lambda route: route.fulfill(json=stats))
    await page.get_by_role("link", name="Overview").click()
    pending = page.locator(".tile", has_text="pending")
    await expect(pending).to_contain_text("≈ 10.2M")
    await expect(pending).to_have_attribute(
        "title", "≈ 10,234,567, estimated from a part of the tasks"
    )
    # How far each text stays from the right edge of its tile.
    room = await page.locator(".tile b").evaluate_all(
        "all => all.map(b => b.parentNode.getBoundingClientRect().right - b.getBoundingClientRect().right)"
    )
    assert min(room) >= 8


async def test_trouble_that_goes_on_is_told_once_at_a_time(
    guarded: RunningNode, admin: Site
) -> None:
    page = await admin.open("/admin", role="read")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    asked = []

    async def refuse(route: Route) -> None:
        asked.append(route.request.url)
        await route.fulfill(status=503, json={"detail": "no connection to PostgreSQL"})

    await page.route("**/v1/stats", refuse)
    await wait_for(lambda: len(asked) >= 2, 60, "it was asked for twice")
    await expect(page.get_by_text("no connection to PostgreSQL")).to_have_count(1)


async def test_why_a_task_does_not_run(guarded: RunningNode, admin: Site) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="read")
    panel = page.get_by_role("region", name="Why it does not run now")
    await expect(panel.locator("li").first).to_contain_text("not due")
    await guarded.client.pause(task.id)
    await expect(panel.locator("li").first).to_contain_text("the-admin")
    await expect(panel.locator("li").nth(1)).to_contain_text("not due")
    # Its colours have just the contrast that they need: nothing may fade them.
    await expect(panel.locator("li").nth(1)).to_have_css("opacity", "1")
    await guarded.client.cancel(task.id)
    await expect(panel).to_be_hidden()


async def test_the_due_load_shows_the_herd(guarded: RunningNode, admin: Site) -> None:
    now = from_us(guarded.context.clock.now_us())
    hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    body = {
        "tasks": [{"type": "herd", "run_at": hour.isoformat()}] * 9
        + [{"type": "lone", "queue": "q", "run_at": (hour + timedelta(minutes=7)).isoformat()}]
    }
    assert (await guarded.call("POST", "/v1/tasks/batch", body)).status == 201
    page = await admin.open("/admin/load", role="read")
    await expect(
        page.get_by_text("10 tasks are due, 9 of them (90 %) in a minute :00")
    ).to_be_visible()
    fullest = page.get_by_role("table", name="The ten fullest minutes").locator("tbody tr")
    await expect(fullest).to_have_count(2)
    await page.get_by_label("Queue").select_option("q")
    await expect(page.get_by_text("1 task is due, 0 of them")).to_be_visible()
    await page.get_by_label("By", exact=True).select_option("type")
    await expect(page.get_by_role("table", name="Totals")).to_contain_text("herd")
    canvas = page.get_by_role("img", name="Map of the minutes")
    await canvas.focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_text(": 0 tasks")).to_be_visible()


async def test_the_due_load_goes_by_the_minutes_of_the_browsers_zone(
    guarded: RunningNode, admin: Site
) -> None:
    now = from_us(guarded.context.clock.now_us())
    half = now.replace(minute=30, second=0, microsecond=0) + timedelta(hours=2)
    body = {"tasks": [{"type": "herd", "run_at": half.isoformat()}] * 9}
    assert (await guarded.call("POST", "/v1/tasks/batch", body)).status == 201
    page = await admin.open("/admin/load", role="read", zone="Asia/Kolkata")  # UTC+05:30
    await expect(
        page.get_by_text("9 tasks are due, 9 of them (100 %) in a minute :00")
    ).to_be_visible()


async def test_schedules_are_the_periodic_tasks(guarded: RunningNode, admin: Site) -> None:
    await guarded.client.submit("once", run_at=FAR)
    schedule = {"cron": "30 3 * * *", "timezone": "Europe/Berlin"}
    await guarded.call("POST", "/v1/tasks", {"type": "nightly", "schedule": schedule})
    page = await admin.open("/admin/schedules", role="read")
    row = page.locator("tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("30 3 * * * Europe/Berlin")
    await row.get_by_text("show").click()
    await expect(row.locator("li")).to_have_count(5)
    await row.get_by_role("link", name="nightly").click()
    await expect(page.get_by_role("heading", name="nightly")).to_be_visible()


async def test_alerts_of_a_schedule_that_is_silent(guarded: RunningNode, admin: Site) -> None:
    page = await admin.open("/admin/alerts", role="read")
    await expect(page.get_by_text("No alert is like this.")).to_be_visible()
    body = {"type": "quiet", "schedule": {"every": 3600, "expect_within": 1}}
    assert (await guarded.call("POST", "/v1/tasks", body)).status == 201
    await expect(page.locator("tbody tr")).to_contain_text("silent for too long")
    await page.goto("/admin")
    await expect(page.get_by_role("link", name="alerts open")).to_be_visible()


async def test_a_page_out_of_sight_lets_its_stream_go(guarded: RunningNode, admin: Site) -> None:
    page = await admin.open("/admin", role="read")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    for hidden in ("true", "false"):
        await _hide(page, hidden)
        badge = "not live" if hidden == "true" else "live"
        await expect(page.get_by_text(badge, exact=True)).to_be_visible()
    await wait_for(lambda: guarded.context.feed.listeners == 1, 60, "the first stream is gone")


async def test_a_page_that_begins_out_of_sight_opens_no_stream(
    guarded: RunningNode, admin: Site
) -> None:
    page = await admin.open("/admin/audit", role="admin")
    await expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    await page.add_init_script(
        'Object.defineProperty(document, "hidden", { get: () => true, configurable: true })'
    )
    opened = _streams(page)
    await page.goto("/admin")
    await expect(page.get_by_text("not live", exact=True)).to_be_visible()  # it listens
    await page.evaluate("fetch('/healthz')")  # the request of a stream comes before this
    assert opened == []
    await _hide(page, "false")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert len(opened) == 1


async def test_a_stream_that_was_refused_comes_back_once(guarded: RunningNode, admin: Site) -> None:
    page = await admin.open("/admin/audit", role="admin")
    await expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await released.wait()
        await route.continue_()

    await page.route("**/v1/session", hold)
    await page.route("**/v1/events", lambda route: route.fulfill(status=503, json={}))
    await page.get_by_role("link", name="Overview").click()
    await asyncio.wait_for(asked.wait(), 60)  # it looks who is signed in before it tries again
    await page.unroute("**/v1/events")
    opened = _streams(page)
    for hidden in ("true", "false"):
        await _hide(page, hidden)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    async with page.expect_request_finished(lambda request: "/v1/session" in request.url):
        released.set()
    await page.evaluate("fetch('/healthz')")  # the request of a second stream comes before this
    assert len(opened) == 1


async def test_what_the_charts_missed_is_asked_for_until_it_comes(
    guarded: RunningNode, admin: Site
) -> None:
    page = await admin.open("/admin", role="read")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    chart = page.locator(".chart canvas").first.locator("xpath=ancestor::section")
    await expect(chart).to_have_attribute("data-points", "60")
    series = (await guarded.call("GET", "/v1/stats/series?minutes=60")).body
    series["points"] = series["points"][-10:]
    refusals = 0

    async def refuse_twice(route: Route) -> None:
        nonlocal refusals
        refusals += 1
        if refusals <= 2:
            await route.fulfill(status=503, json={"detail": "Redis does not answer"})
        else:
            await route.fulfill(json=series)

    await page.route("**/v1/stats/series*", refuse_twice)
    for hidden in ("true", "false"):
        await _hide(page, hidden)
    # The stream adds the minutes that have begun since.
    await expect(chart).to_have_attribute("data-points", re.compile("^1[0-9]$"))
    assert refusals == 3
    await expect(page.get_by_text("live", exact=True)).to_be_visible()


async def test_the_colours_of_a_chart_follow_the_system(guarded: RunningNode, admin: Site) -> None:
    for path, name in (("/admin", "Firing lag"), ("/admin/load", "Map of the minutes")):
        page = await admin.open(path, role="read")
        image = page.get_by_role("img", name=name)
        canvas = image.locator("canvas").or_(image.locator("xpath=self::canvas"))
        await expect(canvas).to_be_visible()
        drawn = await canvas.evaluate("canvas => canvas.toDataURL()")
        await page.emulate_media(color_scheme="dark")

        async def is_another(canvas: Locator = canvas, drawn: str = drawn) -> bool:
            return bool(await canvas.evaluate("canvas => canvas.toDataURL()") != drawn)

        await wait_for(is_another, 60, f"{name} is drawn in dark")


async def test_a_session_that_has_ended_is_noticed_by_the_stream(
    guarded: RunningNode, admin: Site
) -> None:
    page = await admin.open("/admin/tasks", role="read")
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    # Nothing else tells of it: the list is not asked for again.
    await page.route("**/v1/tasks?*", lambda route: route.abort())
    await page.context.clear_cookies()
    for hidden in ("true", "false"):
        await _hide(page, hidden)
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(page.get_by_text("The session has ended.")).to_be_visible()


async def test_estimates_are_marked_in_the_table_of_queues(
    guarded: RunningNode, admin: Site
) -> None:
    await guarded.client.submit("a", queue="mails", run_at=FAR)

    async def as_of_a_large_store(route: Route) -> None:
        answer = await route.fetch()
        stats = await answer.json()
        counts = {"by_status": {"pending": 5}, "by_queue": {"mails": {"pending": 5, "due": 0}}}
        stats["counts"] = {**(stats["counts"] or {}), **counts, "exact": False}
        await route.fulfill(response=answer, json=stats)

    page = await admin.open("/admin", role="read")
    await page.route("**/v1/stats", as_of_a_large_store)
    await page.reload()
    row = page.get_by_role("table", name="Tasks by queue").locator("tbody tr")
    await expect(row.locator("td").nth(1)).to_have_text("≈ 5")


async def test_estimates_are_marked_in_the_view_of_queues(
    guarded: RunningNode, admin: Site
) -> None:
    await guarded.client.submit("a", queue="mails", run_at=FAR)
    page = await admin.open("/admin/queues", role="read")
    pending = page.get_by_role("table", name="Queues by name").locator("tbody td").nth(2)
    await expect(pending).to_have_text("1")

    async def as_of_a_large_store(route: Route) -> None:
        answer = await route.fetch()
        queues = await answer.json()
        queues["items"][0] |= {"pending": 12_345_678, "exact": False}
        await route.fulfill(response=answer, json=queues)

    await page.route("**/v1/queues?*", as_of_a_large_store)
    await expect(pending).to_have_text("≈ 12,345,678")


async def test_a_chart_says_the_last_minute_that_has_a_value(
    guarded: RunningNode, admin: Site
) -> None:
    async def after_a_busy_minute(route: Route) -> None:
        answer = await route.fetch()
        series = await answer.json()
        series["points"][-2] |= {"started": 1_200, "completed": 600, "lag_p50": 0.25}
        series["points"][-1] |= {"lag_p50": None, "lag_p95": None, "lag_p99": None}
        await route.fulfill(response=answer, json=series)

    page = await admin.open("/admin", role="read")
    await page.route("**/v1/stats/series*", after_a_busy_minute)
    await page.route(
        "**/v1/events*", lambda route: route.abort()
    )  # what comes is not of this minute
    await page.reload()
    await expect(page.get_by_role("region", name="Throughput")).to_contain_text("started 20/s")
    await expect(page.get_by_role("region", name="Firing lag")).to_contain_text("p50 250 ms")
