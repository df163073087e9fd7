"""`duly.submit` in SQL: what it stores is what POST /v1/tasks stores, and it refuses what that refuses."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from node_rig import RunningNode, running_node

from duly.nodes.api.wire import TaskSubmission

FAR = "2040-01-01T01:00:00.123456+01:00"
ALL: dict[str, Any] = {
    "queue": "mail/fast", "max_retries": 7, "timeout": "PT5M0.5S", "overrun": "queue",
    "misfire_grace": "P1DT2H", "on_lost": "fail", "priority": 9,
    "backoff": {"kind": "linear", "delay": 3}, "idempotency_key": "k é",
    "tags": {"team": "a", "ü": ""}, "concurrency_key": "customer 7", "concurrency_limit": 10_000,
    "fairness_key": "é", "id": "0198A0B0-0000-7000-8000-000000000001",
}  # fmt: skip
OWN = ("id", "slot", "created_at", "updated_at", "idempotency_key")
BY_API = {"schedule", "name", "on_success", "on_failure", "after"}
ARGUMENTS = {"type", "payload", "run_at"}


@asynccontextmanager
async def connected(node: RunningNode) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(node.settings.database_url, timeout=30)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def sql(node: RunningNode) -> AsyncIterator[Any]:
    async with connected(node) as connection:
        yield connection


async def submit(
    sql: Any, task_type: Any = "t", payload: Any = None, run_at: str | None = FAR, **options: Any
) -> UUID:
    made: UUID = await sql.fetchval(
        "select duly.submit($1, $2, $3::text::timestamptz, $4)",
        task_type,
        payload if isinstance(payload, str) else json.dumps(payload),
        run_at,
        json.dumps(options),
    )
    return made


async def refused(sql: Any, *args: Any, **options: Any) -> tuple[str, str, str]:
    """SQLSTATE, field and message."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await submit(sql, *args, **options)
    error: Any = caught.value
    return error.sqlstate, error.column_name, str(error)


async def row(sql: Any, task_id: UUID) -> dict[str, Any]:
    found = dict(await sql.fetchrow("select * from tasks where id = $1", task_id))
    return found | {
        name: json.loads(found[name]) for name in ("payload", "tags", "backoff") if found[name]
    }


@pytest.mark.parametrize("options", [{}, ALL], ids=["defaults", "everything"])
async def test_a_task_made_in_sql_is_one_made_by_the_api(
    node: RunningNode, sql: Any, options: dict[str, Any]
) -> None:
    payload = {"b": [1, 2.5, None, "é"], "big": 10**400, "deep": [[[{}]]]}
    body = {"type": "email.send", "payload": payload, "run_at": FAR, **options}
    if "id" in body:
        body |= {"id": "0198a0b0-0000-7000-8000-000000000002", "idempotency_key": "other"}
    answer = await node.call("POST", "/v1/tasks", json.dumps(body).encode())
    assert answer.status == 201, answer.body
    by_api = await row(sql, UUID(answer.body["id"]))
    by_sql = await row(sql, await submit(sql, "email.send", payload, **options))
    for name in OWN:
        assert (by_api.pop(name) is None) == (by_sql.pop(name) is None), name
    assert by_sql == by_api
    view = await node.client.get(UUID(answer.body["id"]))
    assert view.next_run_at == datetime.fromisoformat(FAR)


async def test_every_field_of_the_api_is_an_option_or_goes_by_the_api_only(sql: Any) -> None:
    for field in TaskSubmission.__struct_fields__:
        if field in ARGUMENTS:
            continue
        state, column, message = await refused(sql, **{field: []})
        assert (state, column) == ("22023", field)
        assert ("goes by the API only" in message) == (field in BY_API), message


async def test_without_a_time_it_is_due_at_the_statement_and_a_delay_counts_from_it(
    sql: Any,
) -> None:
    async with sql.transaction():
        began = await sql.fetchval("select clock_timestamp()")
        now = await row(sql, await submit(sql, run_at=None, queue="none"))
        later = await row(sql, await submit(sql, run_at=None, delay="PT1H", queue="none"))
        ended = await sql.fetchval("select clock_timestamp()")
    assert began <= now["next_run_at"] <= ended
    hour = timedelta(hours=1)
    assert began + hour <= later["next_run_at"] <= ended + hour
    assert now["next_run_at"] == now["occurrence"] == now["created_at"] == now["updated_at"]


async def test_its_id_is_one_of_version_7_with_the_time_and_in_order(sql: Any) -> None:
    ids = [await submit(sql) for _ in range(20)]
    assert ids == sorted(ids)
    assert {one.version for one in ids} == {7}
    made = datetime.fromtimestamp((ids[0].int >> 80) / 1000, UTC)
    created = (await row(sql, ids[0]))["created_at"]
    assert timedelta(0) <= created - made < timedelta(milliseconds=1)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"surprise": 1}, "surprise"),
    ({"schedule": {"every": 60}}, "schedule"),
    ({"queue": "a b"}, "queue"),
    ({"queue": "a/../b"}, "queue"),
    ({"queue": None}, "queue"),
    ({"queue": ""}, "queue"),
    ({"queue": "q" * 101}, "queue"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_retries": 1.5}, "max_retries"),
    ({"max_retries": 100_001}, "max_retries"),
    ({"max_retries": "3"}, "max_retries"),
    ({"backoff": {"kind": "no"}}, "backoff.kind"),
    ({"backoff": {"delay": -1}}, "backoff.delay"),
    ({"backoff": {"factor": 0.5}}, "backoff.factor"),
    ({"backoff": {"max_delay": 31_536_001}}, "backoff.max_delay"),
    ({"backoff": {"jitter": 2}}, "backoff.jitter"),
    ({"backoff": {"other": 2}}, "backoff.other"),
    ({"backoff": 5}, "backoff"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": None}, "timeout"),
    ({"timeout": 31 * 86_400}, "timeout"),
    ({"timeout": "5 minutes"}, "timeout"),
    ({"timeout": "P1M"}, "timeout"),
    ({"timeout": "PT1.5H3M"}, "timeout"),
    ({"timeout": "PT"}, "timeout"),
    ({"misfire_grace": -1}, "misfire_grace"),
    ({"misfire_grace": True}, "misfire_grace"),
    ({"on_lost": "drop"}, "on_lost"),
    ({"overrun": "x"}, "overrun"),
    ({"priority": 10}, "priority"),
    ({"priority": "9"}, "priority"),
    ({"priority": 5.0}, "priority"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "k" * 256}, "idempotency_key"),
    ({"tags": {"": "a"}}, "tags"),
    ({"tags": {"a": 1}}, "tags.a"),
    ({"tags": {"a": "v" * 501}}, "tags.a"),
    ({"tags": {"n" * 101: "v"}}, "tags"),
    ({"tags": {str(n): "" for n in range(17)}}, "tags"),
    ({"concurrency_limit": 1}, "concurrency_limit"),
    ({"concurrency_key": "k", "concurrency_limit": 0}, "concurrency_limit"),
    ({"concurrency_key": ""}, "concurrency_key"),
    ({"fairness_key": "f" * 256}, "fairness_key"),
    ({"region": "mars"}, "region"),
    ({"id": "1"}, "id"),
    ({"delay": 60}, "delay"),
]


async def test_what_the_api_refuses_is_refused_and_named(node: RunningNode, sql: Any) -> None:
    for options, field in WRONG:
        state, column, message = await refused(sql, **options)
        assert (state, column) == ("22023", field), options
        assert message.startswith(f"{field}: ")
        if field in BY_API:
            continue
        answer = await node.call("POST", "/v1/tasks", {"type": "t", "run_at": FAR, **options})
        assert answer.status == 422, options
        # The API may name the field as a whole, or a member of it.
        assert re.split(r"[.\[]", answer.fields[0])[0] == field.partition(".")[0]
    assert await node.count() == 0


async def test_type_time_and_payload_have_the_limits_of_the_api(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url, payload_limit_bytes=3000) as node,
        connected(node) as sql,
    ):
        for args, field in [
            ((None,), "type"),
            (("",), "type"),
            (("a b",), "type"),
            (("a\n",), "type"),
            (("t" * 201,), "type"),
            (("t", json.dumps("x" * 2999)), "payload"),
            (("t", "[" * 201 + "]" * 201), "payload"),
            (("t", "1e1000"), "payload"),
            (("t", None, "infinity"), "run_at"),
            (("t", None, "3000-01-01Z"), "run_at"),
            (("t", None, "1969-12-31 23:59:59Z"), "run_at"),
        ]:
            assert (await refused(sql, *args))[:2] == ("22023", field), args
        await submit(sql, "t" * 200, "[" * 200 + "]" * 200)
        await submit(sql, "t", "1e999")
        await submit(sql, "t", json.dumps("x" * 2998))
        assert (await refused(sql, "t", ["a"], delay=1, run_at=FAR))[1] == "delay"


async def test_an_idempotency_key_is_one_task(node: RunningNode, sql: Any) -> None:
    first = await submit(sql, "t", {"a": 1.0, "b": [2]}, idempotency_key="k", priority=3)
    assert first == await submit(sql, "t", {"b": [2], "a": 1}, priority=3, idempotency_key="k")
    state, column, _ = await refused(sql, "t", {"a": 2}, idempotency_key="k", priority=3)
    assert (state, column) == ("23505", "idempotency_key")
    answer = await node.call("POST", "/v1/tasks", {"type": "t", "idempotency_key": "k"})
    assert answer.status == 409
    state, column, _ = await refused(sql, "t", {"a": 1}, idempotency_key="k", priority=3)
    assert (state, column) == ("23505", "idempotency_key")
    assert await node.count() == 1
    await sql.execute("update idempotency_keys set expires_at = now() - interval '1 second'")
    second = await submit(sql, "other", idempotency_key="k")
    assert second != first


ODD: list[Any] = [
    None, True, "", "é ü \U0001f600 \x7f \x1f \n\t\\\"/", {"z": 1, "é": 2, "\U0001f600": 3, "\uffff": 4, "": []}, [{}, [[]]],
    [0, -0.0, 1, -1, 10, 100, -120000, 1.5, -1.25e3, 123.456, 0.1, 0.000001, 0.0000001, -1.5e-9, 7 * 10**300, 1e21, 5e-324],
]  # fmt: skip


async def test_a_key_of_the_api_is_known_in_sql_and_the_other_way_round(
    node: RunningNode, sql: Any
) -> None:
    both = {name: value for name, value in ALL.items() if name not in ("id", "idempotency_key")}
    times = [FAR, None, "2900-01-01T02:00:00.000120+02:00"]
    for number, payload in enumerate(ODD):
        options = (both if number % 2 else {}) | {"idempotency_key": f"k{number}"}
        run_at = times[number % 3]
        body = {"type": "t", "payload": payload, **options}
        if run_at is not None:
            body["run_at"] = run_at
        if number < 4:
            answer = await node.call("POST", "/v1/tasks", body)
            assert (answer.status, UUID(answer.body["id"])) == (
                201, await submit(sql, "t", json.dumps(payload), run_at, **options),
            ), payload  # fmt: skip
        else:
            made = await submit(sql, "t", json.dumps(payload), run_at, **options)
            answer = await node.call("POST", "/v1/tasks", body)
            assert (answer.status, UUID(answer.body["id"])) == (200, made), payload
    assert await node.count() == len(ODD)


async def test_the_trace_of_a_repeated_submission_does_not_matter(
    node: RunningNode, sql: Any
) -> None:
    parents = [f"00-{'a' * 32}-{span * 16}-01" for span in "bc"]
    ids = {await submit(sql, "t", traceparent=one, idempotency_key="k") for one in parents}
    answer = await node.call(
        "POST", "/v1/tasks", {"type": "t", "run_at": FAR, "idempotency_key": "k"}
    )
    assert (answer.status, {UUID(answer.body["id"])}) == (200, ids)


async def test_a_duration_too_small_for_a_double_is_none_and_too_large_a_one_is_named(
    node: RunningNode, sql: Any
) -> None:
    """As by the API."""
    for number, fields in enumerate(
        ('"delay": 1e-400', '"misfire_grace": 1e-400, "delay": 1e-323')
    ):
        text = f'{{"type": "t", "idempotency_key": "{number}", {fields}}}'
        answer = await node.call("POST", "/v1/tasks", text.encode())
        assert answer.status == 201, answer.body
        query = "select duly.submit('t', 'null', null, $1::jsonb - 'type')"
        assert await sql.fetchval(query, text) == UUID(answer.body["id"])
        made = await row(sql, await sql.fetchval(query, text.replace(f'"{number}"', '"other"')))
        assert made["next_run_at"] == made["created_at"], fields
        await sql.execute("delete from idempotency_keys where key = 'other'")
    for field in ("delay", "timeout", "misfire_grace"):
        for value in ("1e400", "-1e-400") if field != "timeout" else ("1e400", "1e-400"):
            with pytest.raises(asyncpg.PostgresError) as caught:
                await sql.fetchval(
                    "select duly.submit('t', options => $1)", f'{{"{field}": {value}}}'
                )
            error: Any = caught.value
            assert (error.sqlstate, error.column_name) == ("22023", field), value


async def test_the_key_of_a_transaction_that_was_rolled_back_is_free(
    node: RunningNode, sql: Any
) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await submit(sql, "t", idempotency_key="k")
    await transaction.rollback()
    assert await node.count() == 0
    await submit(sql, "other", idempotency_key="k")


async def test_keys_live_as_long_as_the_nodes_settings_say(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url, idempotency_ttl_s=100.0) as node,
        connected(node) as sql,
    ):
        task = await row(sql, await submit(sql, idempotency_key="k"))
        until = await sql.fetchval("select expires_at from idempotency_keys")
        assert until - task["created_at"] == timedelta(seconds=100)


async def test_an_id_that_is_taken_is_refused(node: RunningNode, sql: Any) -> None:
    task_id = str(await submit(sql))
    assert (await refused(sql, id=task_id))[:2] == ("23505", "id")
    await node.client.cancel(task_id)
    assert (await refused(sql, id=task_id))[:2] == ("23505", "id")


async def test_the_own_region_may_be_named(regional: RunningNode) -> None:
    async with connected(regional) as sql:
        task = await row(sql, await submit(sql, region="us"))
        assert task["region"] == "us"
        assert (await refused(sql, region="eu"))[:2] == ("22023", "region")


async def test_a_task_keeps_the_trace_it_was_submitted_in(sql: Any) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert (await row(sql, await submit(sql, traceparent=parent)))["traceparent"] == parent
    for wrong in (f"00-{'0' * 32}-{'b' * 16}-01", f"01-{'a' * 32}-{'b' * 16}-01"):
        assert (await refused(sql, traceparent=wrong))[:2] == ("22023", "traceparent")


async def test_a_user_needs_the_right_to_execute_it_and_no_other(
    node: RunningNode, sql: Any
) -> None:
    role = f"shop_{node.context.node_id[-8:]}"
    await sql.execute(f"create role {role}")
    try:
        await sql.execute(f"set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await submit(sql)
        await sql.execute(f"reset role; grant usage on schema duly to {role}; set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await submit(sql)
        await sql.execute(
            "reset role; grant execute on function duly.submit(text, jsonb, timestamptz, jsonb) "
            f"to {role}; set role {role}; create temp table tasks (id uuid)"
        )
        task_id = await submit(sql, idempotency_key="k")
        assert await sql.fetchval("select count(*) from pg_temp.tasks") == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql.fetchval("select count(*) from public.tasks")
        assert (await node.client.get(task_id)).type == "t"
    finally:
        await sql.execute(f"reset role; drop owned by {role}; drop role {role}")
