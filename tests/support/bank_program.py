"""A worker of a user, run as a process of its own and killed: an effect and its outcome in one transaction.

`python bank_program.py DATABASE_URL REDIS_URL ORDER [STOP]`: ORDER is `outcome_first` or `effect_first`. STOP is
`open` or `committed`: the handler says that it has come so far, and goes no further. Without it, it says how
often it has committed, task by task.
"""

import sys
import time
from typing import Any

import psycopg

import duly


def main(url: str, redis_url: str, order: str, stop: str | None = None) -> None:
    worker = duly.Worker(redis_url, concurrency=4)

    @worker.task("pay")
    def pay(ctx: duly.Context, payload: Any) -> str:
        with psycopg.connect(url, connect_timeout=30) as connection:
            if order == "outcome_first":
                ctx.complete_in_sync(connection, {"by": ctx.worker})
            connection.execute("insert into payments (task) values (%s)", [ctx.id])
            if order == "effect_first":
                ctx.complete_in_sync(connection, {"by": ctx.worker})
            if stop == "open":
                print("open", ctx.id, flush=True)
                time.sleep(3600)
            connection.commit()
        print("committed", ctx.id, flush=True)
        if stop == "committed":
            time.sleep(3600)
        return "not this"

    print("ready", flush=True)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
