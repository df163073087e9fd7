"""Moves money between accounts, each transfer once, whatever happens to this process."""

import asyncio
import os

import bank
import msgspec

import duly

DATABASE_URL = os.environ.get("BANK_DATABASE_URL") or os.environ["DULY_DATABASE_URL"]
CHECKING_S = float(os.environ.get("BANK_CHECKING_S", "0.05"))

worker = duly.Worker(os.environ["DULY_REDIS_URL"], concurrency=10)
print(f"bank worker in process {os.getpid()}", flush=True)


class Transfer(msgspec.Struct):
    """The payload of a task."""

    source: int
    target: int
    amount: int


@worker.task("bank.transfer")
async def transfer(ctx: duly.Context, payload: Transfer) -> dict[str, int]:
    await asyncio.sleep(CHECKING_S)  # ask whether the customer may do this
    async with bank.connect(DATABASE_URL) as connection, ctx.exactly_once(connection) as effect:
        balance = await bank.apply(
            connection, ctx.id, payload.source, payload.target, payload.amount
        )
        effect.result = {"balance": balance}
    return effect.result
