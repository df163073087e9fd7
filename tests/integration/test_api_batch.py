"""Batches: all or nothing, each bad item named by its index."""

from uuid import UUID, uuid4

from node_rig import Answer, RunningNode, running_node

FAR = "2040-01-01T00:00:00Z"
GOOD = {"type": "a", "run_at": FAR}


async def submit(node: RunningNode, tasks: object) -> Answer:
    return await node.call("POST", "/v1/tasks/batch", {"tasks": tasks})


async def test_ids_come_in_the_order_of_the_batch(node: RunningNode) -> None:
    own = str(uuid4())
    tasks = [{**GOOD, "payload": n} for n in range(1000)]
    tasks[500]["id"] = own
    answer = await submit(node, tasks)
    assert answer.status == 201
    ids = answer.body["ids"]
    assert ids[500] == own
    for at in (0, 1, 499, 500, 999):
        assert (await node.client.get(ids[at])).payload == at
    assert await node.count() == 1000


async def test_one_key_for_a_whole_batch_is_refused(node: RunningNode) -> None:
    headers = {"Idempotency-Key": "k"}
    answer = await node.call("POST", "/v1/tasks/batch", {"tasks": [GOOD]}, headers)
    assert (answer.status, answer.fields) == (422, ["Idempotency-Key"])
    assert await node.count() == 0


async def test_an_empty_batch_is_no_mistake(node: RunningNode) -> None:
    assert (await submit(node, []))[:2] == (201, {"ids": []})


async def test_each_bad_item_is_named_and_nothing_is_stored(node: RunningNode) -> None:
    own = str(uuid4())
    tasks: list[object] = [{**GOOD, "idempotency_key": f"k{n}"} for n in range(20)]
    tasks[1] = {"type": ""}
    tasks[3] = 7
    tasks[5] = {**GOOD, "delay": 1}
    tasks[7] = {**GOOD, "timeout": 0, "misfire_grace": -1}
    tasks[9] = {**GOOD, "nope": 1}
    tasks[11] = {**GOOD, "payload": {"a": ["\0"]}}
    tasks[13] = {**GOOD, "id": own}
    tasks[14] = {**GOOD, "id": own}
    tasks[15] = {**GOOD, "idempotency_key": "k0", "priority": 9}
    answer = await submit(node, tasks)
    assert answer.status == 422
    assert answer.fields == [
        "tasks[1].type", "tasks[3]", "tasks[5].delay", "tasks[7].timeout",
        "tasks[7].misfire_grace", "tasks[9].nope", "tasks[11].payload.a[0]", "tasks[14].id",
        "tasks[15].idempotency_key",
    ]  # fmt: skip
    assert await node.count() == await node.count("idempotency_keys") == 0


async def test_what_the_store_refuses_is_named_by_its_own_index(node: RunningNode) -> None:
    taken, used = str(uuid4()), {**GOOD, "idempotency_key": "used"}
    await node.call("POST", "/v1/tasks", {**GOOD, "id": taken})
    await node.call("POST", "/v1/tasks", used)
    twin = {**GOOD, "idempotency_key": "twin"}
    tasks = [twin, twin, GOOD, twin, {**GOOD, "id": taken}, {**used, "priority": 1}]
    answer = await submit(node, tasks)
    assert (answer.status, answer.fields) == (409, ["tasks[4].id", "tasks[5].idempotency_key"])
    assert await node.count() == 2
    assert await node.count("idempotency_keys") == 1


async def test_a_used_key_with_another_body_alone_refuses_the_batch(node: RunningNode) -> None:
    used = {**GOOD, "idempotency_key": "used"}
    await node.call("POST", "/v1/tasks", used)
    answer = await submit(node, [GOOD, {**used, "priority": 1}])
    assert (answer.status, answer.fields) == (409, ["tasks[1].idempotency_key"])
    assert await node.count() == 1


async def test_keys_within_a_batch_and_of_before(node: RunningNode) -> None:
    keyed = {**GOOD, "idempotency_key": "k"}
    first = (await node.call("POST", "/v1/tasks", keyed)).body["id"]
    twin = {**GOOD, "idempotency_key": "twin"}
    answer = await submit(node, [twin, keyed, GOOD, twin])
    assert answer.status == 201
    ids = answer.body["ids"]
    assert ids[1] == first
    assert ids[0] == ids[3]
    assert len({*ids}) == 3
    assert await node.count() == 3
    assert (await submit(node, [keyed])).body["ids"] == [first]


async def test_a_payload_too_large_is_named_by_its_index(node: RunningNode) -> None:
    answer = await submit(node, [GOOD, {**GOOD, "payload": "x" * 300_000}, {"type": ""}])
    assert (answer.status, answer.fields) == (413, ["tasks[1].payload", "tasks[2].type"])
    assert await node.count() == 0


async def test_the_most_that_a_batch_may_hold(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url, batch_limit=100) as node:
        answer = await submit(node, [GOOD] * 101)
        assert (answer.status, answer.fields) == (413, ["tasks"])
        assert await node.count() == 0
        assert len({UUID(one) for one in (await submit(node, [GOOD] * 100)).body["ids"]}) == 100


async def test_c40_one_item_with_a_nul_among_a_thousand(node: RunningNode) -> None:
    tasks: list[object] = [{**GOOD, "payload": {"n": n}} for n in range(1000)]
    tasks[613] = {**GOOD, "payload": {"a": "x\0y"}}
    answer = await submit(node, tasks)
    assert (answer.status, answer.fields) == (422, ["tasks[613].payload.a"])
    assert await node.count() == 0
