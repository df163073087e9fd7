"""Pictures of each view of the admin page; see scripts/screenshots."""

import argparse
import asyncio
import math
import random
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from browser_rig import TOKENS, Site, chromium, site
from node_rig import RunningNode, running_node
from PIL import Image
from playwright.async_api import Page
from servers import discard, make_template, new_servers, remove_folder
from waiting import wait_for

from duly.actors.meters.meters import Meters
from duly.actors.meters.minutes import MINUTE_US, Figures
from duly.nodes.worker import Context, Fail, Retry, Worker
from duly.storage.migrate import migrate

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FAR = "2040-01-01T00:00:00Z"

VIEWS = {
    "overview": "/admin",
    "tasks": "/admin/tasks",
    "task": "/admin/tasks/{failed}",
    "schedule": "/admin/tasks/{nightly}",
    "waiting": "/admin/tasks/{waiting}",
    "parent": "/admin/tasks/{parent}",
    "schedules": "/admin/schedules",
    "load": "/admin/load",
    "failed": "/admin/failed",
    "queues": "/admin/queues",
    "ledger": "/admin/ledger",
    "bulk": "/admin/bulk",
    "job": "/admin/bulk/{job}",
    "nodes": "/admin/nodes",
    "workers": "/admin/workers",
    "alerts": "/admin/alerts",
    "audit": "/admin/audit",
    "look": "/admin/failed",
    "sign-in": "/admin",
}
"""Each view with something to see. `look`: a bulk action before it is done."""

DARK = ("overview", "queues")
"""Views that are taken in the dark look too."""

SETTLE_MS = 700
"""For what comes after the heading."""

MAILS = 1_500
RUNNING = 3


def sample_worker(redis_url: str) -> Worker:
    """Does what the sample tasks ask for: most of it well."""
    worker = Worker(redis_url, id="worker-1", queues=["mails", "reports", "default"])
    stay = asyncio.Event()
    chance = random.Random(7)

    @worker.task("mail.send")
    async def send(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(chance.uniform(0.005, 0.06))
        if payload["to"].endswith("@example.com"):
            raise Fail("550 no such mailbox")
        return {"message_id": f"<{ctx.token}@mail.example.org>"}

    @worker.task("report.build")
    async def build(ctx: Context) -> dict[str, int]:
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        if ctx.attempt < 3 and chance.random() < 0.3:
            raise Retry(delay=1)
        return {"pages": chance.randint(3, 40)}

    @worker.task("video.encode")
    async def encode(ctx: Context) -> None:
        await stay.wait()

    names: dict[str, Any] = {"asyncio": asyncio, "Fail": Fail}
    # So that the traceback in the picture does not name the folder of whoever takes it.
    exec(compile(_CHARGE, "/app/billing.py", "exec"), names)  # noqa: S102 - our own text, below
    worker.task("invoice.charge")(names["charge"])
    return worker


_CHARGE = """
async def charge(ctx):
    await asyncio.sleep(0.2)
    if ctx.attempt < 3:
        raise TimeoutError("the bank did not answer within 5 s")
    raise Fail("the card was declined")
"""


async def fill(node: RunningNode) -> dict[str, str]:
    """Submit the sample tasks; answers the ids that views name."""
    client, chance = node.client, random.Random(3)
    ids = {}
    nightly = await client.submit(
        "report.nightly", {"of": "yesterday"}, queue="reports", tags={"team": "finance"},
        schedule={"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
    )  # fmt: skip
    ids["nightly"] = str(nightly.id)
    await client.submit(
        "backup.verify", tags={"team": "platform"},
        schedule={"every": 3600, "expect_within": 1, "pause_after": 3},
    )  # fmt: skip
    for number in range(24):
        await client.submit(
            "cache.warm",
            schedule={"cron": f"{0 if number % 3 else number} * * * *"},
            queue="default",
        )
    await client.submit_batch(_imports(chance) + _mails(chance))
    for number in range(120):
        to = f"user{number}@example.{'com' if number % 17 == 0 else 'org'}"
        tags = {"campaign": "winter"}
        await client.submit("mail.send", {"to": to}, queue="mails", max_retries=1, tags=tags)
        if number % 4 == 0:
            await client.submit("report.build", queue="reports")
    for _ in range(RUNNING):
        await client.submit("video.encode", timeout=3600)
    failed = await client.submit(
        "invoice.charge", {"invoice": "2026-0117", "amount": 129.90, "currency": "EUR"},
        backoff={"kind": "fixed", "delay": 0.3, "jitter": 0}, tags={"customer": "acme"},
    )  # fmt: skip
    ids["failed"] = str(failed.id)
    waiting = await client.submit(
        "mail.send", {"to": "late@example.org"}, queue="mails", run_at=FAR
    )
    await client.pause(waiting.id)
    ids["waiting"] = str(waiting.id)

    parent = await client.submit(
        "invoice.month", {"month": "2026-11"}, run_at=FAR,
        on_success={"type": "mail.send", "queue": "mails", "payload": {"to": "a@example.org"}},
        on_failure={"type": "alarm", "priority": 9},
    )  # fmt: skip
    ids["parent"] = str(parent.id)
    for kind in ("books.close", "report.build"):
        await client.submit(kind, after=[parent.id])

    for queue, limits in (
        ("mails", {"rate": 500, "burst": 100}),
        ("reports", {"max_in_flight": 8}),
        ("imports", {"paused": True}),
    ):
        assert (await node.call("PUT", f"/v1/queues/{queue}", limits)).status == 200
    ids["job"] = await _bulk(node, "pause", 2)
    await settled(node)
    return ids


def _mails(chance: random.Random) -> list[dict[str, Any]]:
    """Many that are due now, and some over the next day, with a herd at each full hour."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    later = [hour + timedelta(hours=chance.randint(1, 23)) for _ in range(150)]
    later += [hour + timedelta(minutes=chance.randint(61, 1380)) for _ in range(300)]
    due: list[datetime | None] = [None] * MAILS + later
    return [
        {
            "type": "mail.send",
            "queue": "mails",
            "payload": {"to": f"user{number}@example.org"},
            **({"run_at": run_at} if run_at else {}),
        }
        for number, run_at in enumerate(due)
    ]


def _imports(chance: random.Random) -> list[dict[str, Any]]:
    """For tomorrow, in a queue that is paused."""
    return [
        {"type": "import.file", "queue": "imports", "delay": chance.randint(3_600, 80_000)}
        for _ in range(400)
    ]


async def _bulk(node: RunningNode, action: str, rate: float) -> str:
    body = {"action": action, "filter": {"type": "import.file", "status": "pending"}, "rate": rate}
    answer = await node.call("POST", "/v1/bulk", body)
    assert answer.status == 202, answer
    return str(answer.body["id"])


async def settled(node: RunningNode) -> None:
    """Wait until all that is due has run, and the counts say so."""

    async def done() -> bool:
        counts = (await node.call("GET", "/v1/stats")).body["counts"]
        if counts is None or not counts["exact"]:
            return False
        due = sum(queue["due"] for queue in counts["by_queue"].values())
        completed = counts["by_status"]["completed"]
        return due == 0 and counts["by_status"]["running"] == RUNNING and completed > MAILS

    await wait_for(done, 60, "the sample has run")


def invent_an_hour(meters: Meters, now_us: int) -> None:
    """Figures of the hour that this node looks back on, so that the charts have something to show."""
    chance = random.Random(5)
    for back in range(60):
        figures = meters.minutes[now_us // MINUTE_US - back] = Figures()
        busy = 1.0 + 0.5 * math.sin(back / 9) + (1.5 if back in (20, 21) else 0)
        started = round(busy * chance.uniform(27, 30))
        failed = chance.randint(2, 4) if 18 <= back <= 21 else chance.random() < 0.1
        figures.counts.update(started=started, completed=started - failed, failed=failed)
        figures.due = round(max(0.0, busy - 1.8) * chance.uniform(20, 90))
        for stage, share in (("ticked", 0.3), ("claimed", 0.7), ("published", 1), ("started", 1.2)):
            lags = (round(share * chance.lognormvariate(8.1, 0.5) * busy) for _ in range(400))
            figures.lag(stage).add(lags)
        for name, share, ms in (("mail.send", 0.9, 34), ("report.build", 0.1, 210)):
            count = round(started * share)
            took = (round(chance.lognormvariate(math.log(ms * 1000), 0.3)) for _ in range(count))
            figures.duration(name).add(took)
        meters.unsaved.add(now_us // MINUTE_US - back)


async def shoot(
    pages: Site, nodes: list[RunningNode], ids: dict[str, str], args: argparse.Namespace
) -> None:
    """Every view that was asked for."""
    for dark in (False, True):
        for width in (1280, 360):
            names = [name for name in VIEWS if args.only in (None, name)]
            if dark:
                names = [name for name in names if name in DARK]
            now_us = nodes[0].context.clock.now_us()
            for node in nodes:
                invent_an_hour(node.context.meters, now_us)
            page = await pages.open(role="admin", width=width, dark=dark)
            for name in names:
                await show(page, name, ids)
                file = args.out / f"{name}-{width}-{'dark' if dark else 'light'}.png"
                await page.screenshot(path=file)
                wide = await page.evaluate("document.documentElement.scrollWidth")
                print(
                    f"{file.name}: {file.stat().st_size // 1024} KiB", "TOO WIDE" * (wide > width)
                )


async def show(page: Page, name: str, ids: dict[str, str]) -> None:
    """Bring a view up, and wait until it has all that it shows."""
    if name == "sign-in":
        await page.context.clear_cookies()
    await page.goto(VIEWS[name].format(**ids))
    await page.locator("main:not([aria-busy]) h1").wait_for()
    if name == "look":
        await page.get_by_role("button", name="Retry all of these").click()
        await page.get_by_role("button", name="Look first").click()
        await page.get_by_role("dialog").get_by_role("button", name="Retry ").wait_for()
    await page.wait_for_timeout(SETTLE_MS)


def shrink(file: Path) -> None:
    """The same picture with 256 colours, the most frequent of those that differ; what is rare but differs much stays."""
    image = Image.open(file).convert("RGB")
    counted: Any = image.getcolors(1 << 24)
    colours = [colour for _, colour in sorted(counted, reverse=True)]
    for apart in (0, 2, 4, 8, 16, 32, 64):
        chosen: list[Any] = []
        for colour in colours:
            if all(math.dist(colour, other) > apart for other in chosen):
                chosen.append(colour)
            if len(chosen) > 256:
                break
        else:
            break
    nearest = {
        colour: min(range(len(chosen)), key=lambda at: math.dist(colour, chosen[at]))
        for colour in colours
    }
    raw = image.tobytes()
    dots = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    painted = Image.frombytes("P", image.size, bytes(map(nearest.__getitem__, dots)))
    painted.putpalette([part for colour in chosen for part in colour])
    painted.save(file, "PNG", optimize=True)


async def take(args: argparse.Namespace, database_url: str, redis_url: str) -> None:
    """On a migrated database."""
    await migrate(database_url)
    worker = sample_worker(redis_url)
    async with (
        running_node(
            database_url, redis_url, tokens=TOKENS, token="a-secret", node_name="node-a"
        ) as node,
        running_node(
            database_url,
            redis_url,
            tokens=TOKENS,
            owns_slots=False,
            token="a-secret",
            node_name="node-b",
        ) as other,
    ):
        working = asyncio.create_task(worker.serve())
        try:
            ids = await fill(node)
            async with chromium() as browser, site(browser, node.url) as pages:
                await shoot(pages, [node, other], ids, args)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the admin page.")
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--only", choices=VIEWS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    template = make_template()
    servers = new_servers(template)
    try:
        asyncio.run(take(args, servers.database_url, servers.redis_url))
    finally:
        discard(servers)
        remove_folder(template)
    with ProcessPoolExecutor(2) as pool:  # once nobody waits for an answer
        for _ in pool.map(shrink, sorted(args.out.glob("*-[0-9]*-*.png"))):
            pass


if __name__ == "__main__":
    main()
