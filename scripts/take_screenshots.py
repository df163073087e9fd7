"""Pictures of each view of the admin page; see scripts/screenshots."""

import argparse
import asyncio
import math
import random
from pathlib import Path
from typing import Any

from browser_rig import TOKENS, Site, chromium, site
from node_rig import RunningNode, running_node
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
}
"""Each view with something to see."""

SETTLE_MS = 700
"""For what comes after the heading."""


def sample_worker(redis_url: str) -> Worker:
    """Does what the sample tasks ask for: most of it well."""
    worker = Worker(redis_url, id="worker-1", queues=["mails", "reports", "default"])
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
    for number in range(120):
        to = f"user{number}@example.{'com' if number % 17 == 0 else 'org'}"
        await client.submit(
            "mail.send", {"to": to}, queue="mails", max_retries=1, tags={"campaign": "winter"}
        )
        if number % 4 == 0:
            await client.submit("report.build", queue="reports")
        if number % 6 == 0:
            delay = chance.randint(60, 80_000)
            await client.submit("mail.send", {"to": to}, queue="mails", delay=delay)
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

    async def done() -> bool:
        return (await client.get(failed.id)).status == "failed"

    await wait_for(done, 60, "the sample has run")
    for queue, limits in (
        ("mails", {"rate": 50, "burst": 10}),
        ("reports", {"max_in_flight": 8}),
        ("imports", {"paused": True}),
    ):
        assert (await node.call("PUT", f"/v1/queues/{queue}", limits)).status == 200
    bulk = {"action": "pause", "filter": {"status": "pending", "queue": "mails"}, "rate": 5}
    ids["job"] = (await node.call("POST", "/v1/bulk", bulk)).body["id"]
    return ids


def invent_an_hour(meters: Meters, now_us: int) -> None:
    """Figures of the hour before the sample began, so that the charts have something to show."""
    chance = random.Random(5)
    for back in range(1, 60):
        figures = meters.minutes.setdefault(now_us // MINUTE_US - back, Figures())
        busy = 1.0 + 0.5 * math.sin(back / 9) + (1.5 if back in (20, 21) else 0)
        started = round(busy * chance.uniform(2_700, 3_000))
        failed = round(started * chance.uniform(0.002, 0.008) * (6 if 18 <= back <= 21 else 1))
        figures.counts.update(started=started, completed=started - failed, failed=failed)
        figures.due = round(max(0.0, busy - 1.8) * chance.uniform(200, 900))
        lags = (round(chance.lognormvariate(8.1, 0.5) * busy) for _ in range(400))
        figures.lag("published").add(lags)


async def shoot(pages: Site, ids: dict[str, str], args: argparse.Namespace) -> None:
    """Every view that was asked for."""
    looks = [(1280, False), (360, True)]
    if args.all:
        looks = [(width, dark) for width in (1280, 360) for dark in (False, True)]
    for width, dark in looks:
        page = await pages.open(role="admin", width=width, dark=dark)
        for name, path in VIEWS.items():
            if args.only and name != args.only:
                continue
            await page.goto(path.format(**ids))
            await page.locator("main:not([aria-busy]) h1").wait_for()
            await page.wait_for_timeout(SETTLE_MS)
            file = args.out / f"{name}-{width}-{'dark' if dark else 'light'}.png"
            await page.screenshot(path=file, full_page=False)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            print(f"{file}: {file.stat().st_size // 1024} KiB", "TOO WIDE" if wide > width else "")


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
        ),
    ):
        working = asyncio.create_task(worker.serve())
        try:
            ids = await fill(node)
            invent_an_hour(node.context.meters, node.context.clock.now_us())
            async with chromium() as browser, site(browser, node.url) as pages:
                await shoot(pages, ids, args)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the admin page.")
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    template = make_template()
    servers = new_servers(template)
    try:
        asyncio.run(take(args, servers.database_url, servers.redis_url))
    finally:
        discard(servers)
        remove_folder(template)


if __name__ == "__main__":
    main()
