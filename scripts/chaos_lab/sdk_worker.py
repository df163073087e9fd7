"""A worker with Duly's SDK: `duly worker chaos_lab.sdk_worker:worker`."""

import os
from typing import Any

import asyncpg

import duly
from chaos_lab import work

_EFFECT = "insert into chaos_effects (task_id, occurrence, token) values ($1, $2, $3)"
_LIMIT_S = 10.0
_log = work.log_from_environment()

worker = duly.Worker(
    os.environ["DULY_REDIS_URL"],
    queues=list(work.QUEUES),
    concurrency=50,
    api=os.environ["CHAOS_API"],
)


def _register(kind: str) -> None:
    @worker.task(kind)
    async def handle(ctx: duly.Context, payload: dict[str, Any]) -> str:
        _log.start(ctx.id, ctx.token, payload["v"])
        result = work.new_result(ctx.token)
        try:
            await work.perform(kind, ctx.attempt)
            if kind == "effect":
                result = await _apply(ctx, result)
        except work.NotNowError:
            _log.end(ctx.id, ctx.token, "snoozed")
            raise duly.Snooze(work.RETRY_DELAY_S) from None
        except (work.FailedError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            _log.end(ctx.id, ctx.token, "failed")
            raise
        _log.end(ctx.id, ctx.token, "completed", result)
        return result


async def _apply(ctx: duly.Context, result: str) -> str:
    """Apply the effect, or answer what an earlier attempt that applied it had to say."""
    connection = await asyncpg.connect(os.environ["CHAOS_DATABASE"], timeout=_LIMIT_S)
    try:
        async with ctx.exactly_once(connection) as effect:
            await connection.execute(_EFFECT, ctx.id, ctx.due, ctx.token, timeout=_LIMIT_S)
            effect.result = result
    except duly.AlreadyDone as done:
        return str(done.result)
    finally:
        connection.terminate()
    return result


for _kind in work.KINDS:
    _register(_kind)
