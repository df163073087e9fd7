"""The worker of `duly demo`: says when it ran, and how late."""

import os
from datetime import UTC, datetime

from duly.nodes.worker import Context, Worker

worker = Worker(
    os.environ.get("DULY_REDIS_URL", "redis://127.0.0.1:6379/0"),
    api=os.environ.get("DULY_URL"),
    token=os.environ.get("DULY_TOKEN"),
)


@worker.task("demo.hello")
async def hello(ctx: Context, payload: dict[str, int]) -> dict[str, float]:
    """Print the lag between the due time and now."""
    now = datetime.now(UTC)
    late_ms = (now - ctx.due).total_seconds() * 1000
    shown = now.astimezone().strftime("%H:%M:%S.%f")[:-3]
    print(f"{shown}  worker ran task {payload['number']}, {late_ms:.1f} ms after its due time",
          flush=True)  # fmt: skip
    return {"late_ms": late_ms}
