"""A worker with Duly's SDK: `duly worker chaos_lab.sdk_worker:worker`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

import duly
from chaos_lab import work

_EFFECT = "insert into chaos_effects (task_id, occurrence, token) values ($1, $2, $3)"
_LIMIT_S = 10.0
_idle: list[Any] = []
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
    try:
        async with _connection() as connection, ctx.exactly_once(connection) as effect:
            await connection.execute(_EFFECT, ctx.id, ctx.due, ctx.token)
            effect.result = result
    except duly.AlreadyDone as done:
        return str(done.result)
    return result


@asynccontextmanager
async def _connection() -> AsyncIterator[Any]:
    """One that is kept as long as nothing goes wrong on it."""
    connection = _idle.pop() if _idle else await _connect()
    try:
        yield connection
    except duly.AlreadyDone:
        _idle.append(connection)
        raise
    except BaseException:
        connection.terminate()
        raise
    _idle.append(connection)


async def _connect() -> Any:
    url = os.environ["CHAOS_DATABASE"]
    return await asyncpg.connect(url, timeout=_LIMIT_S, command_timeout=_LIMIT_S)


for _kind in work.KINDS:
    _register(_kind)
