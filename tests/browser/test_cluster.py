"""The views of nodes, slots and workers, in a real browser."""

from browser_rig import Site
from node_rig import RunningNode
from playwright.async_api import expect
from worker_rig import running

from duly.nodes.worker import Context, Worker


async def test_the_nodes_and_the_map_of_the_slots(guarded: RunningNode, admin: Site) -> None:
    node_id = guarded.context.node_id
    page = await admin.open("/admin/nodes", role="read")
    await expect(page.get_by_role("table", name="Live nodes")).to_contain_text(node_id)
    cells = page.get_by_role("grid", name="Slots").get_by_role("gridcell")
    await expect(cells).to_have_text(["A"] * 256)
    await cells.first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp"):
        await page.keyboard.press(key)
    await expect(page.get_by_text("Slot 16:")).to_contain_text(node_id)
    await page.keyboard.press("End")
    await expect(page.get_by_text("Slot 255:")).to_contain_text("epoch")


async def test_the_workers(guarded: RunningNode, admin: Site, redis_url: str) -> None:
    page = await admin.open("/admin/workers", role="read")
    await expect(page.get_by_text("No worker is alive.")).to_be_visible()
    worker = Worker(redis_url, id="worker-7", queues=["mails"], concurrency=3)

    @worker.task("t")
    async def handle(_: Context) -> None:
        return None

    async with running(worker):
        await guarded.client.submit("t", queue="mails")  # a queue that nodes have published to
        await expect(page.locator("tbody tr")).to_contain_text("worker-7")
        await expect(page.locator("tbody tr")).to_contain_text("0 of 3")
