"""What people do on the admin page with tasks, in a real browser."""

import asyncio
from typing import Any

from browser_rig import SECRETS, Site
from node_rig import RunningNode
from playwright.async_api import Page, Route, expect
from waiting import wait_for

from duly.nodes.client import Task

FAR = "2040-01-01T00:00:00Z"


async def _failed(node: RunningNode, task_type: str, **options: Any) -> Task:
    """A task that has failed for good."""
    task = await node.running_task(task_type, max_retries=0, **options)
    error = {"type": "Boom", "message": "it <b>burst</b>"}
    body = {"token": task.version, "outcome": "failed", "error": error, "worker": "w-1"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
    return await node.client.get(task.id)


async def _confirm(page: Page, button: str, answer: str) -> None:
    await page.get_by_role("button", name=button, exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_signing_in_and_out(admin: Site) -> None:
    page = await admin.open("/admin/tasks?type=one")
    token = page.get_by_label("Token")
    await token.fill("wrong")
    await token.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the token is not known")
    await token.fill("s-secret")
    await token.press("Enter")
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    assert page.url.endswith("/admin/tasks?type=one")  # what the link asked for
    assert await page.evaluate("document.cookie") == ""  # out of reach of scripts
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_search_by_each_filter_and_the_url_holds_it(
    guarded: RunningNode, admin: Site
) -> None:
    one = await guarded.client.submit(
        "mail.send", run_at=FAR, queue="mails", tags={"customer": "acme"}
    )
    await guarded.client.submit("report.build", run_at=FAR)
    page = await admin.open("/admin/tasks", role="read")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    for label, value in (("Type", "mail.send"), ("Queue", "mails"), ("Tag", "customer:acme")):
        await page.get_by_label(label, exact=True).fill(value)
        await page.get_by_role("button", name="Search").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("mail.send")
        await page.reload()
        await expect(page.get_by_label(label, exact=True)).to_have_value(value)
        await expect(rows).to_have_count(1)
        await page.get_by_role("link", name="Clear").click()
        await expect(rows).to_have_count(2)
    await page.get_by_label("Status").select_option("failed")
    await expect(page.get_by_text("No task is like this.")).to_be_visible()
    await page.go_back()
    await expect(rows).to_have_count(2)
    await page.get_by_label("Id", exact=True).fill(str(one.id))
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("heading", name="mail.send")).to_be_visible()
    await page.get_by_text("customer: acme").wait_for()


async def test_pages_go_on_by_the_cursor(guarded: RunningNode, admin: Site) -> None:
    batch = {"tasks": [{"type": f"t{n:02}", "run_at": FAR} for n in range(60)]}
    assert (await guarded.call("POST", "/v1/tasks/batch", batch)).status == 201
    page = await admin.open("/admin/tasks", role="read")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    await page.get_by_role("link", name="Next page").click()
    await expect(rows).to_have_count(10)
    await expect(page.get_by_role("link", name="Next page")).to_have_count(0)
    await page.get_by_role("link", name="First page").click()
    await expect(rows).to_have_count(50)


async def test_a_new_task_comes_into_the_list_by_itself(guarded: RunningNode, admin: Site) -> None:
    page = await admin.open("/admin/tasks", role="read")
    await expect(page.get_by_text("No task is like this.")).to_be_visible()
    await guarded.client.submit("fresh", run_at=FAR)
    await expect(page.get_by_text("fresh")).to_be_visible()


async def test_retry_of_a_failed_task(guarded: RunningNode, admin: Site) -> None:
    task = await _failed(guarded, "mail.send", payload={"to": "a@example.org"})
    page = await admin.open("/admin/tasks?status=failed", role="submit")
    await expect(page.locator("tbody tr")).to_contain_text("Boom: it <b>burst</b>")
    await page.locator("tbody tr a").first.click()
    await expect(page.locator(".head .badge")).to_have_text("failed")
    await expect(page.locator("section", has_text="Attempts")).to_contain_text("w-1")
    await _confirm(page, "Retry", "Retry")
    await expect(page.locator(".head .badge")).not_to_have_text("failed")

    async def runs_again() -> bool:
        return (await guarded.client.get(task.id)).status != "failed"

    await wait_for(runs_again, 60, "it is tried again")


async def test_cancel_pause_resume_and_run_now(guarded: RunningNode, admin: Site) -> None:
    task = await guarded.client.submit("mail.send", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="submit")
    badges = page.locator(".head .badge")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Back").click()
    assert (await guarded.client.get(task.id)).status == "pending"  # called off
    await _confirm(page, "Pause", "Pause")
    await expect(badges).to_have_text(["pending", "paused"])
    assert (await guarded.client.get(task.id)).paused
    await _confirm(page, "Resume", "Resume")
    await expect(badges).to_have_text(["pending"])
    await _confirm(page, "Run now", "Run now")
    await expect(badges).to_have_text(["running"])
    await _confirm(page, "Cancel", "Cancel the task")
    await expect(badges).to_have_text(["cancelled"])
    await expect(page.locator(".head button")).to_have_count(0)
    assert (await guarded.client.get(task.id)).status == "cancelled"


async def test_a_waiting_task_leads_to_the_one_it_waits_for(
    guarded: RunningNode, admin: Site
) -> None:
    first = await guarded.client.submit("mail.send", run_at=FAR)
    waits = await guarded.client.submit("mail.tell", after=[first.id])
    page = await admin.open(f"/admin/tasks/{waits.id}", role="submit")
    panel = page.get_by_role("region", name="Why it does not run now")
    await expect(panel.get_by_role("definition").first).to_have_text(f"{first.id} pending")
    await panel.get_by_role("link", name=str(first.id)).click()
    await expect(page.get_by_role("heading", name="mail.send")).to_be_visible()


async def test_a_parent_leads_to_what_follows_it_and_what_waits_for_it(
    guarded: RunningNode, admin: Site
) -> None:
    then: dict[str, Any] = {
        "on_success": {"type": "mail.tell"},
        "on_failure": {"type": "alarm", "queue": "ops"},
    }
    first = await guarded.client.submit("mail.send", run_at=FAR, **then)
    waits = [await guarded.client.submit("join", after=[first.id]) for _ in range(21)]
    page = await admin.open(f"/admin/tasks/{first.id}", role="payload-view")
    panel = page.get_by_role("region", name="What comes after it")
    await expect(panel).to_contain_text("mail.tell, queue default, to be created")
    await expect(panel).to_contain_text("alarm, queue ops, to be created")
    await expect(panel).to_contain_text("and more: the newest 20 are shown")
    shown = panel.get_by_role("link")
    await expect(shown).to_have_text([str(one.id) for one in waits[:0:-1]])
    await shown.first.click()
    await expect(page.get_by_role("heading", name="join")).to_be_visible()

    failed = await _failed(guarded, "mail.send", **then)
    await page.goto(f"/admin/tasks/{failed.id}")
    await expect(shown).to_have_count(1)
    await expect(panel).to_contain_text("failed")
    await shown.click()
    await expect(page.get_by_role("heading", name="alarm")).to_be_visible()


async def test_edit_sends_what_was_changed_with_all_its_digits(
    guarded: RunningNode, admin: Site
) -> None:
    body = b'{"type": "a", "run_at": "2040-01-01T00:00:00Z", "payload": {"n": 12345678901234567890.125}}'
    task = (await guarded.call("POST", "/v1/tasks", body)).body
    path = f"/v1/tasks/{task['id']}"
    page = await admin.open(f"/admin/tasks/{task['id']}", role="submit")
    await expect(page.locator("pre.json").first).to_contain_text("12345678901234567890.125")
    await page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Priority").fill("12")
    await dialog.get_by_role("button", name="Save").click()
    # The browser's own check of the field, or the server's: it stays open, and nothing is changed.
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Priority").fill("8")
    payload = dialog.get_by_label("Payload")
    await payload.fill('{"n": 98765432109876543210.5')
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("cannot be read")
    await payload.fill('{"n": 98765432109876543210.5}')
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    await expect(page.locator("pre.json").first).to_contain_text("98765432109876543210.5")
    changed = await guarded.call("GET", path)
    assert (changed.body["priority"], changed.body["next_run_at"]) == (8, FAR)


async def test_an_edit_of_what_somebody_else_changed_is_refused(
    guarded: RunningNode, admin: Site
) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="submit")
    await page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    await guarded.client.cancel(task.id)
    await dialog.get_by_label("Priority").fill("8")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("the task is at version")


async def test_markup_in_a_payload_is_shown_as_text(guarded: RunningNode, admin: Site) -> None:
    evil = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    task = await guarded.client.submit("a", {"evil": evil, evil: 1}, run_at=FAR, tags={"<b>": evil})
    page = await admin.open(f"/admin/tasks/{task.id}", role="payload-view")
    await expect(page.locator("pre.json").first).to_contain_text("<script>document.title=")
    for path in (f"/admin/tasks/{task.id}", "/admin/tasks"):
        await page.goto(path)
        await expect(page.get_by_text("<script>").first).to_be_visible()
        assert await page.locator("main script, main img, main b").count() == 0
        assert "taken" not in await page.title()


async def test_a_reader_sees_no_buttons_and_no_payload_and_is_refused_by_the_server(
    guarded: RunningNode, admin: Site
) -> None:
    task = await guarded.client.submit("a", {"word": "hush"}, run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="read")
    await expect(page.get_by_text("hidden from this role")).to_be_visible()
    assert "hush" not in await page.content()
    await expect(page.locator("main button")).to_have_count(0)
    await expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    refused = await page.evaluate(
        """async (path) => {
            const { csrf } = await (await fetch("/v1/session")).json();
            const answer = await fetch(path, { method: "POST", headers: { "X-CSRF-Token": csrf } });
            return answer.status;
        }""",
        f"/v1/tasks/{task.id}/cancel",
    )
    assert refused == 403
    assert (await guarded.client.get(task.id)).status == "pending"
    other = await admin.open(f"/admin/tasks/{task.id}", role="payload-view")
    await expect(other.locator("pre.json").first).to_contain_text("hush")
    await expect(other.locator("main button")).to_have_count(0)


async def test_a_periodic_task_shows_its_next_fire_times(guarded: RunningNode, admin: Site) -> None:
    schedule = {"cron": "30 3 * * *", "timezone": "Europe/Berlin"}
    body = {"type": "nightly", "schedule": schedule}
    task = (await guarded.call("POST", "/v1/tasks", body)).body
    page = await admin.open(f"/admin/tasks/{task['id']}", role="read")
    times = page.get_by_role("region", name="Next fire times")
    await expect(times.locator("li")).to_have_count(5)
    await expect(times.locator("li").first).to_contain_text("03:30:00")  # the browser is in Berlin


async def test_a_task_that_is_not_there_and_a_page_that_is_not(admin: Site) -> None:
    page = await admin.open("/admin/tasks/00000000-0000-7000-8000-000000000000", role="read")
    await expect(page.get_by_role("alert")).to_contain_text("there is no task")
    for path in ("/admin/tasks/%zz", "/admin/nowhere"):
        await page.goto(path)
        await expect(page.get_by_text("There is no such page.")).to_be_visible()
    await page.get_by_role("link", name="To the start").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_everything_can_be_reached_with_the_keyboard(
    guarded: RunningNode, admin: Site
) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="submit")
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    await page.keyboard.press("Shift+Tab")
    reached = set()
    for _ in range(40):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.textContent.trim().slice(0, 30)"))
    assert {"Tasks", "Nodes", "Run now", "Pause", "Edit", "Cancel", "default"} <= reached
    await page.get_by_role("button", name="Pause").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await page.evaluate("document.activeElement.textContent") == "Pause"


async def test_the_focus_and_what_is_unfolded_outlast_a_refresh(
    guarded: RunningNode, admin: Site
) -> None:
    task = await _failed(guarded, "a")
    page = await admin.open(f"/admin/tasks/{task.id}", role="submit")
    unfolded = page.locator("main table details").first
    await unfolded.evaluate("(one) => { one.open = true; }")
    await expect(page.locator("main[aria-busy]")).to_have_count(0)  # it has the focus, once
    await page.get_by_role("button", name="Retry").focus()
    await page.evaluate("document.querySelector('main h1').dataset.old = '1'")
    await guarded.client.retry(task.id)
    await expect(page.locator("main h1[data-old]")).to_have_count(0)  # it was drawn anew
    await expect(page.locator("main table details[open]")).to_have_count(1)
    # The button is gone: the focus is where the view begins, not where the page does.
    assert await page.evaluate("document.activeElement.id") == "main"


async def test_the_focus_stays_on_a_button_and_in_a_list(guarded: RunningNode, admin: Site) -> None:
    waits = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{waits.id}", role="submit")
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    await expect(page.locator("main[aria-busy]")).to_have_count(0)  # it has the focus, once
    await page.get_by_role("button", name="Cancel").focus()
    await page.evaluate("document.querySelector('main h1').dataset.old = '1'")
    body = {"priority": 9}
    assert (await guarded.call("PATCH", f"/v1/tasks/{waits.id}", body)).status == 200
    await expect(page.locator("main h1[data-old]")).to_have_count(0)
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    task = await _failed(guarded, "a")
    await page.goto("/admin/ledger")
    link = page.locator(f"main a[href='/admin/tasks/{task.id}']")
    await link.focus()
    await page.evaluate("document.querySelector('main table').dataset.old = '1'")
    await expect(page.locator("main table[data-old]")).to_have_count(0)
    await expect(link).to_be_focused()


async def test_the_audit_log_tells_who_did_it(guarded: RunningNode, admin: Site) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="admin")
    await _confirm(page, "Pause", "Pause")
    await page.get_by_role("link", name="Audit").click()
    row = page.locator("tbody tr", has_text="pause")
    await expect(row).to_contain_text("the-admin")
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="a", exact=True)).to_be_visible()


async def test_a_question_ends_when_its_view_is_left(guarded: RunningNode, admin: Site) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    page = await admin.open("/admin/tasks", role="submit")
    await page.locator("tbody a").click()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.locator("tbody a").click()
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    assert (await guarded.client.get(task.id)).status == "pending"


async def test_a_view_left_while_its_module_comes_is_not_drawn(
    guarded: RunningNode, admin: Site
) -> None:
    page = await admin.open("/admin/workers", role="admin")
    await expect(page.get_by_text("No worker is alive.")).to_be_visible()
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await released.wait()
        await route.continue_()

    await page.route("**/admin/static/views/queues.js", hold)
    await page.get_by_role("link", name="Queues").click()
    await asyncio.wait_for(asked.wait(), 60)
    await page.get_by_role("link", name="Nodes").click()
    await expect(page.get_by_role("table", name="Live nodes")).to_be_visible()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    released.set()
    await page.evaluate("import('/admin/static/views/queues.js')")
    await page.evaluate("fetch('/healthz')")  # what a view asks for as it begins, comes before this
    assert [url for url in requests if "/v1/queues" in url] == []
    await expect(page.get_by_role("heading", name="Nodes")).to_be_visible()


async def test_another_tab_that_signs_in_anew_takes_nothing_from_this_one(
    guarded: RunningNode, admin: Site
) -> None:
    await guarded.client.submit("a", run_at=FAR)
    page = await admin.open("/admin/tasks", role="submit")
    await page.locator("tbody a").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    old = await page.context.cookies()

    async def signed_in_anew() -> bool:  # cookies of one second are the same
        await page.context.request.post("/v1/session", data={"token": SECRETS["submit"]})
        return await page.context.cookies() != old

    await wait_for(signed_in_anew, 60, "the cookie is another")
    await _confirm(page, "Pause", "Pause")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await page.context.request.post("/v1/session", data={"token": SECRETS["read"]})
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("dialog")).to_contain_text("signed in as the-read (read)")


async def test_the_link_of_the_view_is_in_sight_on_a_telephone(admin: Site) -> None:
    page = await admin.open("/admin/audit", role="admin", width=360)
    link = page.get_by_role("link", name="Audit")
    await expect(link).to_have_attribute("aria-current", "page")
    await expect(link).to_be_in_viewport(ratio=1)


async def test_what_is_encrypted_is_shown_as_that(guarded: RunningNode, admin: Site) -> None:
    sealed = {"$encrypted": {"key": "2026-11", "data": "c2VjcmV0"}}
    task = await guarded.running_task("mail.send", payload=sealed, max_retries=0)
    body = {"token": task.version, "outcome": "failed", "error": {"type": "Boom", **sealed}}
    assert (await guarded.call("POST", f"/v1/tasks/{task.id}/report", body)).status == 200
    waiting = await guarded.client.submit("mail.send", sealed, run_at=FAR)
    page = await admin.open(f"/admin/tasks/{task.id}", role="admin")
    for name, text in (("Payload", ""), ("Error", "Boom")):
        shown = page.get_by_role("region", name=name, exact=True)
        await expect(shown).to_contain_text(f"{text}encrypted with key 2026-11")
        await expect(shown).not_to_contain_text("c2VjcmV0")
    await expect(page.get_by_text("Boom: encrypted").first).to_be_visible()
    await page.goto(f"/admin/tasks/{waiting.id}")
    await page.get_by_role("button", name="Edit", exact=True).click()
    await expect(page.get_by_label("Tags, a JSON object of texts")).to_be_visible()
    await expect(page.get_by_label("Payload, JSON")).to_have_count(0)
