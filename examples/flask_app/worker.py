"""Sends the welcome mails. Run it with `duly worker worker:worker`."""

import os
import sqlite3
from contextlib import closing

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"])


@worker.task("signup.welcome")
def welcome(ctx: duly.Context, payload: dict[str, int]) -> str:
    """Runs in a thread, as every plain function; so it may block."""
    number = payload["signup"]
    with closing(sqlite3.connect(os.environ["DATABASE_FILE"], timeout=30)) as connection:
        row = connection.execute(
            "select email from signups where id = ? and welcomed_at is null", [number]
        ).fetchone()
        if row is None:
            return "nothing to do: welcomed before, or gone"
        # Your mail goes out here. An attempt may be the second one: pass ctx.headers()["Idempotency-Key"] on.
        print(f"welcome, {row[0]}", flush=True)
        with connection:
            connection.execute("update signups set welcomed_at = datetime() where id = ?", [number])
    return f"welcomed {row[0]}"
