"""The API while PostgreSQL is slow or gone, and while clients hang up."""

import asyncio
import random
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import msgspec
import pytest
from node_rig import Answer, RunningNode, running_node
from waiting import wait_for

from duly.actors.messages import Submit
from duly.actors.runtime import Reply
from duly.storage.submitting import NewTask, Submitted

FAR = "2040-01-01T00:00:00Z"


async def test_c39_a_pool_used_up_is_503_in_time_and_recovers(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(
        fresh_database, redis_url, db_pool_size=3, db_statement_timeout_s=1.0, lease_ttl_s=30.0
    ) as node:
        connection = await asyncpg.connect(fresh_database)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("lock table idempotency_keys in access exclusive mode")

        async def submit(n: int) -> tuple[Answer, float]:
            body: dict[str, Any] = {"type": "a", "run_at": FAR, "idempotency_key": f"k{n}"}
            if n % 4 == 1:  # these do not share a statement with others
                body["id"] = str(uuid4())
            began = asyncio.get_running_loop().time()
            answer = await node.call("POST", "/v1/tasks", body)
            return answer, asyncio.get_running_loop().time() - began

        calls = [asyncio.create_task(submit(n)) for n in range(200)]
        await asyncio.sleep(0)
        ready = await node.call("GET", "/readyz")
        assert ready.body["parts"]["postgres"]["ok"], ready
        answers = await asyncio.gather(*calls)
        assert {answer.status for answer, _ in answers} == {503}
        assert {answer.headers["Retry-After"] for answer, _ in answers} == {"1"}
        assert (
            max(seconds for _, seconds in answers) < 30
        )  # whoever waits for the lock waits for ever
        assert node.context.vitals.owned_slots == 256
        await transaction.rollback()
        await connection.close()

        async def accepted() -> bool:
            return (await submit(200))[0].status in (200, 201)

        await wait_for(accepted, 60, "submissions are accepted again")
        # What was refused before it had begun is not stored behind the client's back.
        assert await node.count() == 1


async def test_c46_clients_that_hang_up_leave_whole_tasks_and_no_connection(
    node: RunningNode,
) -> None:
    chance = random.Random(46)
    keys = [f"k{n}" for n in range(1880)]
    batches = [[f"b{n}-{m}" for m in range(20)] for n in range(60)]
    running = [await node.running_task(max_retries=0) for _ in range(8)]
    pending = [(await node.client.submit("p", run_at=FAR)).id for _ in range(52)]

    def task(key: str) -> dict[str, Any]:
        return {"type": "a", "run_at": FAR, "idempotency_key": key}

    requests: list[tuple[str, object]] = [("/v1/tasks", task(key)) for key in keys]
    requests += [("/v1/tasks/batch", {"tasks": [task(key) for key in batch]}) for batch in batches]
    requests += [(f"/v1/tasks/{one}/cancel", None) for one in pending]
    requests += [
        (f"/v1/tasks/{one.id}/report", {"token": one.version, "outcome": "completed"})
        for one in running
    ]
    assert len(requests) == 2000
    chance.shuffle(requests)
    before = _serving()
    room = asyncio.Semaphore(50)

    async def hang_up(path: str, body: object) -> None:
        async with room:
            await _send_and_leave(node, path, body, chance.random() * 0.05)

    await asyncio.gather(*(hang_up(*request) for request in requests))
    # Whoever connects last is accepted last: by then all the others are served, or have been.
    async with aiohttp.ClientSession() as last, last.get(f"{node.url}/healthz") as answer:
        assert answer.status == 200
    await wait_for(lambda: not _serving() - before, 60, "every request has been dealt with")
    await _idle(node)
    stored = await _keys(node)
    for batch in batches:
        assert len(stored.keys() & set(batch)) in (0, len(batch))
    assert set(stored.values()) == await _ids(node, "a")

    # A repeat finds what there is, and makes what there is not.
    async def repeat(key: str) -> None:
        async with room:
            answer = await node.call("POST", "/v1/tasks", task(key))
        assert answer.status == (200 if key in stored else 201)
        assert stored.get(key) in (None, UUID(answer.body["id"]))

    await asyncio.gather(*(repeat(key) for key in keys))
    assert await node.count("idempotency_keys") >= len(keys)
    for one in pending:
        status = (await node.client.get(one)).status
        assert status in ("pending", "cancelled")
    for ended in running:
        runs = (await node.call("GET", f"/v1/tasks/{ended.id}/runs")).body["items"]
        found = await node.client.get(ended.id)
        assert (found.status, len(runs)) in (("running", 0), ("completed", 1))
    await _idle(node)


def _serving() -> set[asyncio.Task[Any]]:
    """The node's tasks that serve a connection each, until its last request has been dealt with."""
    return {
        task
        for task in asyncio.all_tasks()
        if "RequestHandler.start" in getattr(task.get_coro(), "__qualname__", "")
    }


async def _send_and_leave(node: RunningNode, path: str, body: object, after_s: float) -> None:
    parts = urlsplit(node.url)
    data = b"" if body is None else msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    request = head.encode() + data
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    if after_s < 0.005:
        request = request[: len(request) // 2]  # hangs up in the middle of its own words
    writer.write(request)
    await asyncio.sleep(after_s)
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _idle(node: RunningNode) -> None:
    """Until nothing is under way; then no connection may be in a transaction."""
    boxes = node.context.boxes

    async def quiet() -> bool:
        query = (
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and state <> 'idle'"
        )
        return boxes.submitter.depth == 0 and not await _value(node, query)

    await wait_for(quiet, 60, "nothing is under way and no transaction is open")
    query = (
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and application_name not like 'duly notices %'"
    )
    settings = node.settings
    most = settings.db_pool_size + settings.db_core_pool_size
    pools = (node.context.db, node.context.api_db)

    async def as_many_as_known() -> bool:
        known = sum(pool.connections for pool in pools)
        assert known <= most
        return bool(await _value(node, query) - 1 == known)

    await wait_for(as_many_as_known, 60, "the server has no session that no pool knows")


async def _value(node: RunningNode, query: str) -> Any:
    connection = await asyncpg.connect(node.settings.database_url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def _keys(node: RunningNode) -> dict[str, UUID]:
    connection = await asyncpg.connect(node.settings.database_url)
    rows = await connection.fetch("select key, task_id from idempotency_keys where key ~ '^[kb]'")
    await connection.close()
    # The client makes keys of its own, 32 hexadecimal digits.
    return {row["key"]: row["task_id"] for row in rows if len(row["key"]) < 10}


async def _ids(node: RunningNode, task_type: str) -> set[UUID]:
    connection = await asyncpg.connect(node.settings.database_url)
    rows = await connection.fetch("select id from tasks where type = $1", task_type)
    await connection.close()
    return {row["id"] for row in rows}


async def test_a_client_that_hangs_up_within_its_body_is_no_error(
    node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        await _send_and_leave(node, "/v1/tasks", {"type": "a", "payload": "x" * 1000}, 0.004)
    assert (await node.call("GET", "/healthz")).status == 200
    assert await node.count() == 0
    assert [record for record in caplog.records if record.name == "duly.api"] == []


async def test_a_database_without_the_schema_is_503(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url, may_crash=True) as node:
        task = await node.running_task()
        await _value(node, "alter table finished_tasks rename to elsewhere")
        answer = await node.call("GET", "/v1/tasks")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "duly migrate" in answer.body["detail"]
        # Here it is an actor that fails; who waits for its answer is told to come again.
        report = {"token": task.version, "outcome": "completed"}
        answer = await node.call("POST", f"/v1/tasks/{task.id}/report", report)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        await _value(node, "alter table elsewhere rename to finished_tasks")

        async def recorded() -> bool:
            answer = await node.call("POST", f"/v1/tasks/{task.id}/report", report)
            return answer.status == 200

        await wait_for(recorded, 60, "the recorder works again")


def _new(task_type: str) -> NewTask:
    now = datetime.now(UTC)
    return NewTask(
        id=uuid4(), type=task_type, queue="default", payload="1", due=now,
        max_retries=0, backoff=None, timeout=1, misfire_grace=None, on_lost="retry", priority=5,
        key=None, fingerprint=None, tags="{}", own_id=False, created_at=now, occurrence=now,
    )  # fmt: skip


async def test_what_cannot_be_stored_fails_alone(node: RunningNode) -> None:
    """As if the checks before the store had a hole: the others of its batch are stored."""
    replies = [Reply[Submitted]() for _ in range(20)]
    for at, reply in enumerate(replies):
        new = _new("a\0" if at == 7 else "a")
        assert node.context.boxes.submitter.offer(Submit(new, reply))
    for at, reply in enumerate(replies):
        if at == 7:
            with pytest.raises(asyncpg.DataError):
                await reply.wait(60)
        else:
            assert (await reply.wait(60)).slot is not None
    assert await node.count() == 19


async def test_a_submission_nobody_waits_for_is_not_begun(node: RunningNode) -> None:
    abandoned: Reply[Submitted] = Reply()
    abandoned.fail(TimeoutError())
    after: Reply[Submitted] = Reply()
    for reply in (abandoned, after):
        assert node.context.boxes.submitter.offer(Submit(_new("a"), reply))
    await after.wait(60)
    assert await node.count() == 1


async def test_readiness_tells_of_a_server_that_refuses_to_write(node: RunningNode) -> None:
    connection = await asyncpg.connect(node.settings.database_url)
    name = urlsplit(str(node.settings.database_url)).path.strip("/")
    await connection.execute(f'alter database "{name}" set default_transaction_read_only = on')
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )

    async def red() -> Answer | None:
        answer = await node.call("GET", "/readyz")
        return (
            answer if answer.status == 503 and not answer.body["parts"]["postgres"]["ok"] else None
        )

    answer = await wait_for(red, 60, "readiness is red", ignore=(aiohttp.ClientError,))
    assert answer.headers["Retry-After"] == "1"
    assert answer.body["ready"] is False
    assert answer.body["parts"]["redis"]["ok"] is True
    refused = await node.call("POST", "/v1/tasks", {"type": "a"})
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    await connection.execute("set default_transaction_read_only = off")
    await connection.execute(f'alter database "{name}" reset default_transaction_read_only')
    await connection.close()

    async def accepted() -> bool:
        return (await node.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})).status == 201

    await wait_for(accepted, 60, "writes resume")
