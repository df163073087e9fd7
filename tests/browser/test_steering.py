"""What admins do on the page: queues, bulk actions; and the ledger that tells what became of it."""

import asyncio
from urllib.parse import quote

import pytest
from browser_rig import Site
from node_rig import RunningNode
from playwright.async_api import Route, expect
from waiting import wait_for

FAR = "2040-01-01T00:00:00Z"


async def _failed(node: RunningNode, task_type: str, count: int) -> list[str]:
    """The ids of tasks that have failed for good."""
    ids = []
    for _ in range(count):
        task = await node.running_task(task_type, max_retries=0)
        body = {"token": task.version, "outcome": "failed", "error": "Boom", "worker": "w-1"}
        assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
        ids.append(str(task.id))
    return ids


async def test_pause_a_queue_and_set_its_limits(guarded: RunningNode, admin: Site) -> None:
    await guarded.client.submit("a", queue="mails", run_at=FAR)
    page = await admin.open("/admin/queues", role="admin")
    row = page.locator("tbody tr", has_text="mails")
    await row.get_by_role("button", name="Pause mails").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await expect(row).to_contain_text("by the-admin")
    await row.get_by_role("button", name="Limits of mails").click()
    await dialog.get_by_label("Rate").fill("2.5")
    await dialog.get_by_label("In flight").fill("7")
    await dialog.get_by_role("button", name="Save limits").click()
    await expect(row).to_contain_text("2.5/s")
    queue = (await guarded.call("GET", "/v1/queues/mails")).body
    assert (queue["paused"], queue["rate"], queue["burst"], queue["max_in_flight"]) == (
        True, 2.5, None, 7,
    )  # fmt: skip
    await row.get_by_role("button", name="Limits of mails").click()
    await dialog.get_by_label("Rate").fill("0")
    await dialog.get_by_role("button", name="Save limits").click()
    await expect(dialog.get_by_label("Rate")).to_have_attribute("aria-invalid", "true")
    await dialog.get_by_label("Rate").fill("")
    await dialog.get_by_role("button", name="Save limits").click()
    await row.get_by_role("button", name="Resume mails").click()
    await dialog.get_by_role("button", name="Resume", exact=True).click()
    await expect(row).to_contain_text("open")
    queue = (await guarded.call("GET", "/v1/queues/mails")).body
    assert (queue["paused"], queue["rate"], queue["max_in_flight"]) == (False, None, 7)


async def test_a_queue_is_found_by_a_part_of_its_name(guarded: RunningNode, admin: Site) -> None:
    for name in ("mails", "mails/slow", "reports"):
        assert (
            await guarded.call("PUT", f"/v1/queues/{quote(name, safe='')}", {"rate": 1})
        ).status == 200
    page = await admin.open("/admin/queues", role="read")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Name").fill("MAIL")
    await page.get_by_role("button", name="Search").click()
    await expect(rows).to_have_count(2)
    assert page.url.endswith("?contains=MAIL")
    await page.get_by_label("Name").fill("nobody")
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_text("No queue is named like this.")).to_be_visible()
    await page.get_by_role("link", name="Clear").click()
    await expect(rows).to_have_count(3)


@pytest.mark.parametrize("width", [1280, 360])
async def test_a_long_name_pushes_nothing_out_of_view(
    guarded: RunningNode, admin: Site, width: int
) -> None:
    name = ("a" * 60 + "." + "b" * 39)[:100]
    task = await guarded.client.submit("t" * 200, queue=name, run_at=FAR)
    assert (
        await guarded.call("PUT", f"/v1/queues/{name}", {"rate": 1.5, "paused": True})
    ).status == 200
    page = await admin.open("/admin/queues", role="admin", width=width)
    limits = page.get_by_role("button", name=f"Limits of {name}")
    overview = page.get_by_role("table", name="Tasks by queue").locator("tbody td > div").last
    for path, last in (("/admin/queues", limits), ("/admin", overview)):
        await page.goto(path)
        await last.wait_for()
        box = await last.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
    await page.goto(f"/admin/tasks/{task.id}")
    await page.get_by_text(f"Its queue, {name}").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("refused", [False, True])
async def test_who_closes_a_question_under_way_is_told_what_became_of_it(
    guarded: RunningNode, admin: Site, refused: bool
) -> None:
    await guarded.client.submit("a", queue="mails", run_at=FAR)
    page = await admin.open("/admin/queues", role="admin")
    sent, closed = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        sent.set()
        await closed.wait()
        if refused:
            await route.fulfill(status=503, json={"status": 503, "detail": "PostgreSQL is away"})
        else:
            await route.continue_()

    await page.route("**/v1/queues/mails", hold)
    await page.get_by_role("button", name="Pause mails").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await wait_for(sent.is_set, 60, "the change is sent")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    closed.set()
    said = "mails: pause: PostgreSQL is away" if refused else "Queue mails is set"
    await expect(page.locator("#notices")).to_contain_text(said)
    row = page.locator("tbody tr", has_text="mails")
    await expect(row).to_contain_text("open" if refused else "paused")


async def test_only_admins_have_buttons_for_queues_and_bulk(
    guarded: RunningNode, admin: Site
) -> None:
    await guarded.client.submit("a", queue="mails", run_at=FAR)
    page = await admin.open("/admin/queues", role="submit")
    await expect(page.locator("tbody tr")).to_contain_text("mails")
    await expect(page.locator("main table button")).to_have_count(0)
    await page.goto("/admin/failed")
    await expect(page.get_by_text("Nothing has failed.")).to_be_visible()
    await expect(page.get_by_role("button", name="Retry all")).to_have_count(0)


async def test_bulk_retry_looks_first_and_then_does_it(guarded: RunningNode, admin: Site) -> None:
    failed = await _failed(guarded, "mail.send", 3)
    others = await _failed(guarded, "other", 1)
    page = await admin.open("/admin/failed", role="admin")
    await expect(page.locator("tbody tr")).to_have_count(4)
    await page.get_by_label("Type", exact=True).fill("mail.send")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("tbody tr")).to_have_count(3)
    await page.get_by_role("button", name="Retry all of these…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("status: failed")
    await dialog.get_by_role("button", name="Look first").click()
    await expect(dialog.get_by_role("heading")).to_have_text("Retry 3 tasks")
    await expect(dialog.get_by_role("listitem")).to_have_count(3)
    await dialog.get_by_role("button", name="Back").click()
    await expect(dialog).to_have_count(0)
    for task_id in failed:  # a look changes nothing
        assert (await guarded.client.get(task_id)).status == "failed"
    await page.get_by_role("button", name="Retry all of these…").click()
    await dialog.get_by_role("button", name="Look first").click()
    await dialog.get_by_role("button", name="retry 3 tasks").click()
    await expect(page.get_by_role("heading", name="Bulk retry")).to_be_visible()
    await expect(page.locator(".head .badge")).to_have_text("done")
    await expect(page.get_by_text("3 of 3")).to_be_visible()
    for task_id in failed:
        assert (await guarded.client.get(task_id)).status != "failed"
    assert (await guarded.client.get(others[0])).status == "failed"
    await page.get_by_role("link", name="All bulk actions").click()
    await expect(page.locator("tbody tr")).to_contain_text("retry")


async def test_a_bulk_action_can_be_stopped(guarded: RunningNode, admin: Site) -> None:
    tasks = [{"type": "a", "run_at": FAR}] * 100
    assert (await guarded.call("POST", "/v1/tasks/batch", {"tasks": tasks})).status == 201
    page = await admin.open("/admin/tasks?status=pending", role="admin")
    await page.get_by_role("button", name="Act on all of these…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Tasks a second").fill("0.1")
    await dialog.get_by_role("button", name="Look first").click()
    await dialog.get_by_role("button", name="cancel 100 tasks").click()
    await page.get_by_role("button", name="Stop").click()
    await dialog.get_by_role("button", name="Stop it").click()
    await expect(page.locator(".head .badge")).to_have_text("stopped")

    async def most_are_left() -> bool:
        page_of = (await guarded.call("GET", "/v1/tasks?status=pending&limit=200")).body
        return len(page_of["items"]) >= 50

    await wait_for(most_are_left, 60, "most tasks are as they were")


async def test_a_press_of_stop_outlasts_the_progress_of_a_bulk_action(
    guarded: RunningNode, admin: Site
) -> None:
    tasks = [{"type": "a", "run_at": FAR}] * 1000
    assert (await guarded.call("POST", "/v1/tasks/batch", {"tasks": tasks})).status == 201
    body = {"action": "cancel", "filter": {"status": "pending"}, "rate": 1}
    job = (await guarded.call("POST", "/v1/bulk", body)).body
    page = await admin.open(f"/admin/bulk/{job['id']}", role="admin")
    stop = page.get_by_role("button", name="Stop")
    await stop.focus()
    await stop.hover()
    await page.mouse.down()
    bar = page.get_by_role("progressbar", name="Progress")
    was = await bar.evaluate("bar => bar.value")
    await expect(bar).not_to_have_js_property("value", was)
    await expect(stop).to_be_focused()
    await page.mouse.up()
    await page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    await expect(page.locator(".head .badge")).to_have_text("stopped")
    await expect(stop).to_have_count(0)


async def test_the_ledger_shows_verdicts_and_refused_reports(
    guarded: RunningNode, admin: Site
) -> None:
    (task_id,) = await _failed(guarded, "mail.send", 1)
    late = {"token": 2**63 - 1, "outcome": "completed", "worker": "w-2"}
    assert (await guarded.call("POST", f"/v1/tasks/{task_id}/report", late)).status == 409
    page = await admin.open("/admin/ledger", role="read")
    await expect(page.locator("tbody tr")).to_contain_text("Boom")
    await page.get_by_label("Verdict").select_option("rejected")
    await page.get_by_role("link", name="Clear").wait_for()

    async def written() -> bool:
        found = (await guarded.call("GET", "/v1/ledger?verdict=rejected")).body["items"]
        return bool(found)

    await wait_for(written, 60, "the refused report is kept")
    await expect(page.locator("tbody tr")).to_contain_text("said completed")
    await page.locator("tbody tr a").click()
    rows = page.get_by_role("table", name="What became of each due time").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(0)).to_contain_text("failed")
    await expect(rows.nth(1)).to_contain_text("refused")
    await expect(rows.nth(1)).to_contain_text("stale attempt")
    await expect(rows.nth(1)).to_contain_text("9223372036854775807")  # no number of JavaScript


async def test_reschedule_tells_when_before_it_does_it(guarded: RunningNode, admin: Site) -> None:
    await guarded.client.submit("a", run_at="2040-01-01T00:00:00Z")
    page = await admin.open("/admin/tasks?type=a", role="admin")
    await page.get_by_role("button", name="Act on all of these").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Action").select_option("reschedule")
    await dialog.get_by_label("Due in").fill("")
    await dialog.get_by_role("button", name="Look first").click()
    is_missing = await dialog.get_by_label("Due in").evaluate(
        "field => field.validity.valueMissing"
    )
    assert is_missing  # an empty field is not "now"
    await dialog.get_by_label("Due in").fill("7200")
    await dialog.get_by_role("button", name="Look first").click()
    await expect(dialog).to_contain_text("They become due 2 h from now.")
