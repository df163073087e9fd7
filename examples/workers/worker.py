"""A worker with the Python SDK. Run it: DULY_REDIS_URL=redis://… python worker.py

`duly conformance -- python worker.py` tries it by the rules of the workers' protocol.
"""

import asyncio
import os

import duly

worker = duly.Worker(
    os.environ.get("DULY_REDIS_URL", "redis://127.0.0.1:6379/0"),
    queues=[os.environ.get("DULY_QUEUE", "default")],
    concurrency=4,
    api=os.environ.get("DULY_URL"),
    token=os.environ.get("DULY_TOKEN"),
)


@worker.task("email.send")
async def send(ctx: duly.Context, payload: dict[str, str]) -> dict[str, str]:
    print("to", payload["to"], "attempt", ctx.attempt, "fencing token", ctx.token)
    return {"sent_to": payload["to"]}


# What `duly conformance` asks of a worker.


@worker.task("conformance.echo")
async def echo(ctx: duly.Context, payload: object) -> object:
    return payload


@worker.task("conformance.sleep")
async def sleep(ctx: duly.Context, payload: dict[str, float]) -> None:
    await asyncio.sleep(float(payload["seconds"]))


@worker.task("conformance.fail")
async def fail(ctx: duly.Context, payload: str) -> None:
    raise RuntimeError(payload)


if __name__ == "__main__":
    worker.run()
