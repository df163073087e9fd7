"""Idempotency keys: one task for a key, whoever asks, however often and at the same time."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
from node_rig import Answer, RunningNode, running_node
from waiting import wait_for

FAR = "2040-01-01T00:00:00Z"
BODY = {"type": "a", "run_at": FAR, "idempotency_key": "k", "payload": {"n": 1}}


async def submit(node: RunningNode, body: object = None, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await node.call("POST", "/v1/tasks", BODY if body is None else body, sent)


async def test_the_same_again_is_the_first_task(node: RunningNode) -> None:
    first = await submit(node)
    again = await submit(node)
    assert (first.status, again.status) == (201, 200)
    assert again.body == first.body
    assert again.headers["Location"] == first.headers["Location"]
    assert await node.count() == 1


async def test_another_body_is_a_conflict(node: RunningNode) -> None:
    await submit(node)
    for change in (
        {"payload": {"n": 2}},
        {"payload": {"n": "1"}},
        {"priority": 1},
        {"run_at": None},
    ):
        assert (await submit(node, {**BODY, **change})).status == 409, change
    assert await node.count() == 1


async def test_spelling_does_not_make_another_body(node: RunningNode) -> None:
    first = await submit(node)
    spelled = b"""{ "payload": {"n": 1.0}, "idempotency_key": "k",
                    "run_at": "2040-01-01T00:00:00Z", "ty\\u0070e": "a" }"""
    again = await submit(node, spelled)
    assert (again.status, again.body["id"]) == (200, first.body["id"])


async def test_header_and_field_are_two_ways_to_say_it(node: RunningNode) -> None:
    first = await submit(node)
    plain = {name: value for name, value in BODY.items() if name != "idempotency_key"}
    by_header = await submit(node, plain, Idempotency_Key="k")
    assert (by_header.status, by_header.body["id"]) == (200, first.body["id"])
    assert (await submit(node, BODY, Idempotency_Key="k")).status == 200
    differs = await submit(node, BODY, Idempotency_Key="other")
    assert (differs.status, differs.fields) == (422, ["idempotency_key"])
    too_long = await submit(node, plain, Idempotency_Key="x" * 256)
    assert (too_long.status, too_long.fields) == (422, ["Idempotency-Key"])
    assert await node.count() == 1


async def test_a_repeat_shows_the_task_as_it_is_now(node: RunningNode) -> None:
    first = await submit(node)
    await node.call("POST", f"/v1/tasks/{first.body['id']}/cancel")
    again = await submit(node)
    assert (again.status, again.body["status"]) == (200, "cancelled")
    assert await node.count() == 0


async def test_an_expired_key_is_free_again(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url, idempotency_ttl_s=1.0) as node:
        first = await submit(node)

        async def free() -> Answer | None:
            answer = await submit(node, {**BODY, "payload": "another"})
            return answer if answer.status == 201 else None

        second = await wait_for(free, 60, "the key is free")
        assert second.body["id"] != first.body["id"]
        assert await node.count() == 2


async def test_c45_one_key_at_once_on_two_nodes_is_one_task(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url) as one,
        running_node(fresh_database, redis_url, owns_slots=False) as two,
    ):
        # A transaction that wrote the same key and is still open: all wait for it, for 300 ms.
        blocker = await asyncpg.connect(fresh_database)
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute(
            "insert into idempotency_keys values ('k', $1, '', now() + interval '1 h')", uuid4()
        )
        calls = [asyncio.create_task(submit((one, two)[n % 2])) for n in range(50)]
        done, _ = await asyncio.wait(calls, timeout=0.3)
        assert not done
        await transaction.rollback()  # and so the key is free again
        await blocker.close()
        answers = await asyncio.gather(*calls)
        assert sorted(answer.status for answer in answers) == [200] * 49 + [201]
        assert len({answer.body["id"] for answer in answers}) == 1
        later = await asyncio.gather(*(submit((one, two)[n % 2]) for n in range(50)))
        assert {(a.status, a.body["id"]) for a in later} == {(200, answers[0].body["id"])}
        assert await one.count() == await one.count("idempotency_keys") == 1


async def test_c45_different_bodies_at_once_have_one_winner(node: RunningNode) -> None:
    bodies = [{**BODY, "payload": n % 5} for n in range(50)]
    answers = await asyncio.gather(*(submit(node, body) for body in bodies))
    (winner,) = [answer.body for answer in answers if answer.status == 201]
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status == 409 or body["payload"] == winner["payload"]
    assert sum(answer.status == 200 for answer in answers) == 9
    assert await node.count() == 1


async def test_c45_batches_at_once_share_keys(node: RunningNode) -> None:
    items = [{**BODY, "idempotency_key": f"k{n}"} for n in range(20)]
    orders: list[list[dict[str, Any]]] = [items, items[::-1], items[10:] + items[:10], items[5:]]
    answers = await asyncio.gather(
        *(node.call("POST", "/v1/tasks/batch", {"tasks": tasks}) for tasks in orders * 3)
    )
    assert {answer.status for answer in answers} == {201}
    ids = dict(zip([i["idempotency_key"] for i in items], answers[0].body["ids"], strict=True))
    for tasks, answer in zip(orders * 3, answers, strict=True):
        assert answer.body["ids"] == [ids[task["idempotency_key"]] for task in tasks]
    assert await node.count() == 20


async def test_a_refused_submission_leaves_its_key_free(node: RunningNode) -> None:
    own = str(uuid4())
    assert (await submit(node, {"type": "a", "id": own, "run_at": FAR})).status == 201
    assert (await submit(node, {**BODY, "id": own})).status == 409
    wrong = await submit(node, {**BODY, "priority": 10})
    assert wrong.status == 422
    batch = await node.call("POST", "/v1/tasks/batch", {"tasks": [BODY, {"type": "a", "id": own}]})
    assert batch.status == 409
    assert await node.count("idempotency_keys") == 0
    assert (await submit(node)).status == 201


async def test_a_key_outlives_its_task(node: RunningNode) -> None:
    """As when the retention is shorter than the life of keys."""
    first = await submit(node)
    connection = await asyncpg.connect(node.settings.database_url)
    await connection.execute("delete from tasks")
    await connection.close()
    again = await submit(node)
    assert again.status == 409
    assert first.body["id"] in again.body["detail"]


async def test_c42_keys_tell_apart_numbers_beyond_every_float(node: RunningNode) -> None:
    numbers = (
        "73786976294838206464", "73786976294838206465", "1e400", "1e401",
        "1" + "0" * 60, "1" + "0" * 59 + "1", "0.1", "0.1000000000000000055",
    )  # fmt: skip
    body = '{"type":"a","run_at":"2040-01-01T00:00:00Z","idempotency_key":"%d","payload":%s}'
    for at, number in enumerate(numbers):
        assert (await submit(node, (body % (at, number)).encode())).status == 201
        for other in numbers:
            again = await submit(node, (body % (at, other)).encode())
            assert again.status == (200 if other == number else 409), (number, other)
