"""With a codec the clear text is nowhere but in clients and workers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from node_rig import RunningNode
from redis.asyncio import Redis
from waiting import wait_for
from worker_rig import running

import duly
from duly.contrib.aes_siv import AesSiv

SECRET = "mind-the-gap-7719"
VISIBLE = "seen-by-all-4402"
DONE_S = 90.0


class Heard:
    """All that Redis is told."""

    def __init__(self) -> None:
        self.text = ""

    @asynccontextmanager
    async def on(self, url: str) -> AsyncIterator[None]:
        client: Redis = Redis.from_url(url)
        async with client.monitor() as monitor:
            task = asyncio.create_task(self._listen(monitor))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])
        await client.aclose()

    async def _listen(self, monitor: Any) -> None:
        async for command in monitor.listen():
            self.text += command["command"]


@pytest.fixture
async def connection(fresh_database: str) -> AsyncIterator[Any]:
    made = await asyncpg.connect(fresh_database, timeout=30)
    yield made
    await made.close()


class Kept(logging.Handler):
    """All that is logged, with its details."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{self.format(record)} {record.__dict__}\n"


@pytest.fixture
def logged() -> Iterator[Kept]:
    kept, root = Kept(), logging.getLogger("duly")
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept
    root.removeHandler(kept)
    root.setLevel(level)


async def tables_with(connection: Any, text: str) -> set[str]:
    """Every table of the database that has this somewhere in a row, also as bytes."""
    tables = await connection.fetch(
        "select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')"
    )
    found = set()
    for table in tables:
        name = table["name"]
        query = (
            f"select count(*) from {name} as t where strpos(t::text, $1) + strpos(t::text, $2) > 0"
        )
        if await connection.fetchval(query, text, text.encode().hex()):
            found.add(name)
    return found


def handlers(codec: AesSiv, redis_url: str, database_url: str) -> duly.Worker:
    worker = duly.Worker(redis_url, codec=codec)

    @worker.task("echo")
    async def echo(ctx: duly.Context, payload: Any) -> Any:
        ctx.progress(0.5)
        return payload

    @worker.task("fail")
    def fail(ctx: duly.Context, payload: Any) -> None:
        raise LookupError(f"nothing like {payload}")

    @worker.task("misfit")
    async def misfit(ctx: duly.Context, payload: dict[str, int]) -> None: ...

    @worker.task("follow")
    async def follow(ctx: duly.Context, payload: Any) -> Any:
        assert ctx.parent is not None
        return [payload, ctx.parent.result or ctx.parent.error["message"]]

    @worker.task("commit")
    async def commit(ctx: duly.Context, payload: Any) -> None:
        connection = await asyncpg.connect(database_url, timeout=30)
        try:
            async with ctx.exactly_once(connection) as effect:
                effect.result = payload
                await ctx.complete_in(connection, payload)
            async with ctx.exactly_once(connection):
                pass
        finally:
            await connection.close()

    return worker


async def test_clear_text_is_in_no_table_no_stream_and_no_log(
    node: RunningNode, redis_url: str, fresh_database: str, connection: Any, logged: Kept
) -> None:
    codec, heard = AesSiv({"k": AesSiv.new_key()}, current="k"), Heard()
    worker = handlers(codec, redis_url, fresh_database)
    async with heard.on(redis_url), duly.Client(node.url, codec=codec) as client:
        follow = {"type": "follow", "payload": f"{SECRET} 2"}
        both: dict[str, Any] = {"on_success": follow, "on_failure": follow, "max_retries": 0}
        good = await client.submit("echo", {"a": SECRET}, tags={"t": VISIBLE}, **both)
        bad = await client.submit("fail", SECRET, **both)
        later = await client.submit("echo", SECRET, delay=3600)
        changed = await client.update(later.id, payload=[SECRET, 2])
        assert changed.payload == [SECRET, 2]
        many = await client.submit_many({"type": "echo", "payload": SECRET} for _ in range(3))
        async with connection.transaction():
            inner = await duly.submit_in(connection, "echo", SECRET, codec=codec)
        others = [(await client.submit(t, SECRET, max_retries=0)).id for t in ("misfit", "commit")]
        periodic = await client.submit("echo", SECRET, schedule=duly.Every(1, max_runs=2))
        async with running(worker):
            ids = [good.id, bad.id, *many, inner, *others, periodic.id]
            over = [await client.wait(one, DONE_S) for one in ids]

            async def followed() -> list[duly.Task] | None:
                ended = [one async for one in client.list(type="follow", status="completed")]
                return ended if len(ended) == 2 else None

            follow_ups = await wait_for(followed, DONE_S, "two tasks have followed")
        assert [one.status for one in over] == [
            "completed", "failed", *["completed"] * 4, "failed", "completed", "completed",
        ]  # fmt: skip
        assert (over[0].payload, over[0].result) == ({"a": SECRET}, {"a": SECRET})
        assert over[0].on_success is not None
        assert over[0].on_success["payload"] == f"{SECRET} 2"
        assert over[1].error["message"] == f"nothing like {SECRET}"
        assert over[-2].result == SECRET
        told = [f"{SECRET} 2", {"a": SECRET}], [f"{SECRET} 2", f"nothing like {SECRET}"]
        assert all(one in [task.result for task in follow_ups] for one in told)
        assert {one.parent["status"] for one in follow_ups if one.parent} == {"completed", "failed"}
        (run,) = await client.runs(bad.id)
        ((attempt,),) = [one.attempts for one in await client.ledger(bad.id)]
        assert run.error == attempt.error == over[1].error
        failures = [one.error async for one in client.verdicts(verdict="failed")]
        assert over[1].error in failures
        await client.cancel(later.id)
        sent = [str(one.id) for one in (*over, *follow_ups)]

        def all_heard() -> bool:
            return all(one in heard.text for one in sent)

        await wait_for(all_heard, DONE_S, "all that was sent to Redis is heard")
    assert {one.split("_20")[0] for one in await tables_with(connection, VISIBLE)} == {
        "finished_tasks"
    }
    assert await tables_with(connection, SECRET) == set()
    sealed = {one.split("_20")[0] for one in await tables_with(connection, '"$encrypted"')}
    assert sealed >= {"finished_tasks", "runs", "duly_effects"}
    assert "$encrypted" in heard.text
    assert SECRET not in heard.text
    assert logged.text
    assert SECRET not in logged.text


async def test_what_a_worker_cannot_read_is_shown(node: RunningNode, redis_url: str) -> None:
    codec = AesSiv({"new": AesSiv.new_key()}, current="new")
    old = duly.Worker(redis_url, id="w", codec=AesSiv({"old": AesSiv.new_key()}, current="old"))
    old.task("send")(lambda ctx, payload: None)
    async with duly.Client(node.url, codec=codec) as client, running(old):
        sealed = await client.submit("send", 1)
        plain = await node.client.submit("send", 1)
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        late = await client.submit("send", 1, run_at=long_ago)

        async def shown() -> bool:
            seen = [one.unreadable for one in await client.workers()]
            return seen == [
                ("send: encrypted with key 'new', which is not here", "send: not encrypted")
            ]

        await wait_for(shown, DONE_S, "why it cannot read them")
        for task in (sealed, plain):
            waiting = await node.client.get(task.id)
            assert (waiting.status in ("pending", "running"), waiting.retry_count) == (True, 0)

        async def put_off() -> dict[str, Any] | None:
            (reason, *_) = (await node.client.explain(late.id)).reasons
            return reason if reason["code"] == "given_back" else None

        why = await wait_for(put_off, DONE_S, "why it waits")
        assert why["detail"] == "unreadable: encrypted with key 'new', which is not here"
        waiting = await node.client.get(late.id)
        assert (waiting.retry_count, waiting.next_run_at) == (
            0,
            datetime.fromisoformat(why["until"]),
        )
        assert waiting.next_run_at is not None
        assert waiting.updated_at is not None
        pause = waiting.next_run_at - waiting.updated_at
        assert timedelta(seconds=230) < pause < timedelta(seconds=301)  # it has waited for an hour
        assert await node.client.runs(late.id) == []
        for task in (sealed, plain, late):
            await node.client.cancel(task.id)
