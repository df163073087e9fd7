"""Sends the welcome mails. Run it with `duly worker worker:worker`."""

import os
from collections.abc import AsyncIterator

import asyncpg

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"])


@worker.lifespan
async def pool() -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(os.environ["DATABASE_URL"]) as opened:
        yield opened


@worker.task("signup.welcome")
async def welcome(ctx: duly.Context, payload: dict[str, int]) -> str:
    email = await ctx.state.fetchval(
        "select email from signups where id = $1 and welcomed_at is null", payload["signup"]
    )
    if email is None:
        return "nothing to do: welcomed before, or gone"
    # Your mail goes out here. An attempt may be the second one: pass ctx.headers()["Idempotency-Key"] on.
    print(f"welcome, {email}", flush=True)
    await ctx.state.execute(
        "update signups set welcomed_at = now() where id = $1", payload["signup"]
    )
    return f"welcomed {email}"
