"""An export of yesterday's orders as CSV, every night at two.

The worker:    duly up --worker nightly_export:worker
The schedule:  python nightly_export.py
"""

import argparse
import csv
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duly

ZONE = "Europe/Berlin"
FOLDER = Path(os.environ.get("EXPORT_FOLDER", "exports"))

worker = duly.Worker(os.environ.get("DULY_REDIS_URL", "redis://127.0.0.1:6379/0"))


@worker.task("orders.export")
def export(ctx: duly.Context) -> dict[str, object]:
    """Write the file of the day before the due time: the same for every attempt, however late."""
    day = (ctx.due.astimezone(ZoneInfo(ZONE)) - timedelta(days=1)).date()
    with closing(shop()) as database:
        rows = database.execute("select id, customer, cents from orders where day = ?", [str(day)])
        FOLDER.mkdir(exist_ok=True)
        target = FOLDER / f"orders-{day}.csv"
        draft = target.with_suffix(f".{ctx.token}")  # two attempts never write one file
        with draft.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["id", "customer", "cents"])
            count = sum(1 for _ in map(lines.writerow, rows))
        draft.replace(target)  # whole or not at all
    print(f"{target.name}: {count} orders", flush=True)
    return {"file": str(target), "orders": count}


def shop() -> sqlite3.Connection:
    """The shop's database; here an example with three orders a day, made when it is asked for."""
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (id integer primary key, day text, customer, cents)")
    database.execute(
        "insert into orders with recursive n(i) as (select 0 union all select i + 1 from n limit 30) "
        "select null, date('now', '+1 day', -(i / 3) || ' days'), 'c' || i % 3, 100 + i from n"
    )
    return database


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Make the schedule; a second time changes nothing."
    )
    parser.add_argument("--at", default="0 2 * * *", help="cron expression (0 2 * * *)")
    args = parser.parse_args()
    with duly.SyncClient(os.environ.get("DULY_URL", "http://127.0.0.1:8080")) as client:
        task = client.submit(
            "orders.export",
            name="nightly-export",
            # An alert is raised if 26 hours go by without an export.
            schedule=duly.Cron(args.at, ZONE, expect_within=timedelta(hours=26)),
            max_retries=5,
            backoff={"kind": "exponential", "delay": 60},
        )
        print(f"{task.id} exports next at {task.next_run_at}")


if __name__ == "__main__":
    main()
