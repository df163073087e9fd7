"""Several databases as one: what is accepted goes to one of them, fires from it, and is found again."""

from collections import Counter
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from cutting_proxy import cutting_proxy
from hand_worker import HandWorker
from node_rig import running_node
from stores_rig import RunningStores, running_stores
from waiting import wait_for

from duly.storage import stores
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.stores import LayoutError

_MANY = 40


async def _submit(node: RunningStores, count: int = _MANY, **fields: Any) -> list[str]:
    ids = []
    for number in range(count):
        answer = await node.call("POST", "/v1/tasks", {"type": "t", "payload": number, **fields})
        assert answer.status == 201, answer.body
        ids.append(answer.body["id"])
    return ids


async def _work_off(node: RunningStores, worker: HandWorker, ids: list[str]) -> None:
    """Take and complete all of these."""
    left = set(ids)
    while left:
        for taken in await worker.read(100):
            await worker.report(taken, "completed")
            left.discard(taken.id)

    async def recorded() -> bool:
        tasks = [await node.client.get(one) for one in ids]
        return all(task.status == "completed" for task in tasks)

    await wait_for(recorded, 60, "all are recorded")


async def test_tasks_of_two_stores_are_fired_and_recorded(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node, HandWorker(redis_url) as worker:
        await worker.live()
        ids = await _submit(node)
        assert {node.store_of(one) for one in ids} == {0, 1}
        for store in (0, 1):
            rows = await node.rows(store, "select id from tasks")
            kept = await node.rows(store, "select slot from slots")
            assert all(
                slot_of(UUID(bytes=row["id"].bytes)) in node.layout.held(store) for row in rows
            )
            assert {row["slot"] for row in kept} == set(range(128 * store, 128 * store + 128))
        await _work_off(node, worker, ids)
        ended = Counter[int]()
        for store in (0, 1):
            ended[store] = len(
                await node.rows(store, "select from runs where verdict = 'completed'")
            )
        assert ended.total() == len(ids)
        assert ended[0]
        assert ended[1]
        reports = await worker.call("XLEN", "duly:{default}:reports")
        assert await worker.call("HLEN", "duly:{default}:inflight") == 0
        assert reports == 0


async def test_tasks_of_each_store_are_followed(two_stores: list[str], redis_url: str) -> None:
    async with running_stores(two_stores, redis_url) as node, HandWorker(redis_url) as worker:
        await worker.live()
        ids = await _submit(node, 20, on_success={"type": "next", "queue": "other"})
        assert {node.store_of(one) for one in ids} == {0, 1}
        await _work_off(node, worker, ids)
        for one in ids:
            [run] = (await node.call("GET", f"/v1/tasks/{one}/runs")).body["items"]
            follower = await node.client.get(run["follow_up"])
            assert (follower.type, follower.queue) == ("next", "other")


async def test_lists_of_two_stores_are_merged_page_by_page(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        ids = await _submit(node, delay=3600)
        await node.call("POST", f"/v1/tasks/{ids[0]}/cancel")
        await node.call("POST", f"/v1/tasks/{ids[1]}/pause")
        found: list[str] = []
        cursor = ""
        while True:
            answer = await node.call("GET", f"/v1/tasks?limit=7{cursor}")
            found += [item["id"] for item in answer.body["items"]]
            if answer.body["next_cursor"] is None:
                break
            cursor = f"&cursor={answer.body['next_cursor']}"
        assert found == sorted(ids, reverse=True)
        paused = await node.call("GET", "/v1/tasks?paused=true")
        assert [item["id"] for item in paused.body["items"]] == [ids[1]]
        notes = await node.call("GET", "/v1/audit")
        assert [note["task_id"] for note in notes.body["items"]] == [ids[1], ids[0]]
        ledger = await node.call("GET", "/v1/ledger")
        assert [entry["task_id"] for entry in ledger.body["items"]] == [ids[0]]
        load = await node.call("GET", "/v1/load")
        assert sum(load.body["series"][0]["counts"]) == _MANY - 2
        slots = (await node.call("GET", "/v1/slots")).body["items"]
        assert [slot["slot"] for slot in slots] == list(range(256))
        assert all(slot["owner"] for slot in slots)

        async def counted() -> bool:
            stats = await node.call("GET", "/v1/stats")
            counts = stats.body["counts"]
            return counts is not None and counts["by_status"]["pending"] == _MANY - 1

        await wait_for(counted, 60, "both stores are counted")


async def test_what_is_about_one_task_goes_to_its_store(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node, HandWorker(redis_url) as worker:
        await worker.live()
        for one in await _submit(node, 8, delay=3600):
            changed = await node.call("PATCH", f"/v1/tasks/{one}", {"priority": 9})
            assert (changed.status, changed.body["priority"]) == (200, 9)
            explained = await node.call("GET", f"/v1/tasks/{one}/explain")
            assert explained.body["reasons"][0]["code"] == "not_due"
            assert (await node.call("POST", f"/v1/tasks/{one}/run-now")).status == 200
            taken = await worker.take()
            assert taken.id == one
            said = {"token": int(taken.fields["token"]), "outcome": "completed", "id": one}
            reported = await node.call("POST", "/v1/reports", {"reports": [said]})
            assert reported.body == {"recorded": [True]}
            runs = await node.call("GET", f"/v1/tasks/{one}/runs")
            assert [run["outcome"] for run in runs.body["items"]] == ["completed"]
        missing = await node.call("GET", "/v1/tasks/01890000-0000-7000-8000-000000000000")
        assert missing.status == 404
        assert (await node.call("GET", "/v1/tasks/nothing")).fields == ["id"]


async def test_a_key_leads_to_one_store_whoever_repeats_it(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        stores = set()
        for number in range(12):
            body = {"type": "t", "idempotency_key": f"key-{number}", "delay": 3600}
            first = await node.call("POST", "/v1/tasks", body)
            again = await node.call("POST", "/v1/tasks", body)
            assert (first.status, again.status) == (201, 200)
            assert again.body["id"] == first.body["id"]
            assert slot_of(UUID(first.body["id"])) == slot_of_key(f"key-{number}")
            stores.add(node.store_of(first.body["id"]))
            other = await node.call("POST", "/v1/tasks", {**body, "type": "u"})
            assert other.status == 409
        assert stores == {0, 1}


async def test_what_stores_cannot_keep_together_is_refused_by_name(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        ids = await _submit(node, delay=3600)
        at = {node.store_of(one): one for one in ids}
        key = next(k for k in map(str, range(99)) if node.layout.store_of(slot_of_key(k)) == 0)
        elsewhere = {"type": "t", "id": str(UUID(int=UUID(at[1]).int)), "idempotency_key": key}
        assert (await node.call("POST", "/v1/tasks", elsewhere)).fields == ["id"]
        fixed = {"type": "t", "id": at[1], "concurrency_key": key}
        assert (await node.call("POST", "/v1/tasks", fixed)).fields == ["id"]
        both = {"type": "t", "idempotency_key": "a", "concurrency_key": "b"}
        assert (await node.call("POST", "/v1/tasks", both)).fields == ["concurrency_key"]
        patched = await node.call("PATCH", f"/v1/tasks/{at[1]}", {"concurrency_key": key})
        assert patched.fields == ["concurrency_key"]
        limited = await node.call("PUT", "/v1/queues/default", {"max_in_flight": 3})
        assert limited.fields == ["max_in_flight"]


async def test_a_batch_without_ids_and_keys_is_in_one_store(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        stores = set()
        for _ in range(20):
            tasks = [{"type": "t", "delay": 3600} for _ in range(5)]
            answer = await node.call("POST", "/v1/tasks/batch", {"tasks": tasks})
            assert answer.status == 201, answer.body
            of = {node.store_of(one) for one in answer.body["ids"]}
            assert len(of) == 1
            stores |= of
        assert stores == {0, 1}
        layout = node.layout
        keys = {layout.store_of(slot_of_key(k)): k for k in map(str, range(99))}
        keyed = [{"type": "t", "delay": 60}, {"type": "t", "idempotency_key": keys[1], "delay": 60}]
        answer = await node.call("POST", "/v1/tasks/batch", {"tasks": keyed})
        assert {node.store_of(one) for one in answer.body["ids"]} == {1}


async def test_what_is_set_of_a_queue_counts_in_every_store(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node, HandWorker(redis_url) as worker:
        await worker.live()
        assert (await node.call("PUT", "/v1/queues/default", {"paused": True})).status == 200

        async def known() -> bool:
            rows = await node.rows(1, "select paused from queues")
            return [row["paused"] for row in rows] == [True]

        await wait_for(known, 60, "the other store has it")
        ids = await _submit(node)
        explained = [await node.call("GET", f"/v1/tasks/{one}/explain") for one in ids]
        assert {one.body["reasons"][0]["code"] for one in explained} == {"queue_paused"}
        assert (await node.call("PUT", "/v1/queues/default", {"paused": False})).status == 200
        await _work_off(node, worker, ids)


async def test_a_bulk_action_reaches_the_tasks_of_all_stores(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        ids = await _submit(node, delay=3600)
        asked = {"action": "cancel", "filter": {"type": "t"}}
        preview = await node.call("POST", "/v1/bulk", {**asked, "dry_run": True})
        assert (preview.body["count"], preview.body["exact"]) == (_MANY, True)
        job = (await node.call("POST", "/v1/bulk", asked)).body
        assert (job["total"], job["rate"]) == (_MANY, 500)

        async def done() -> dict[str, Any] | None:
            answer = await node.call("GET", f"/v1/bulk/{job['id']}")
            body: dict[str, Any] = answer.body
            return body if body["status"] == "done" else None

        ended = await wait_for(done, 60, "the job is done")
        assert (ended["done"], ended["refused"], ended["total"]) == (_MANY, 0, _MANY)
        tasks = [await node.client.get(one) for one in ids]
        assert {task.status for task in tasks} == {"cancelled"}
        listed = (await node.call("GET", "/v1/bulk")).body["items"]
        assert [one["id"] for one in listed] == [job["id"]]


async def test_metrics_tell_of_each_store(two_stores: list[str], redis_url: str) -> None:
    async with running_stores(two_stores, redis_url) as node:
        text = (await node.call("GET", "/metrics")).body
        assert 'duly_owned_slots{store="0"} 128.0' in text
        assert 'duly_owned_slots{store="1"} 128.0' in text
        assert 'duly_up{part="store 1"} 1.0' in text


async def test_a_store_that_is_away_stops_only_its_own_slots(
    two_stores: list[str], redis_url: str
) -> None:
    async with cutting_proxy(two_stores[1]) as proxy:
        urls = [two_stores[0], proxy.url]
        short: dict[str, Any] = {"db_statement_timeout_s": 1.0}
        async with (
            running_stores(urls, redis_url, **short) as node,
            HandWorker(redis_url) as worker,
        ):
            await worker.live()
            before = await _submit(node, delay=3600)
            there = [one for one in before if node.store_of(one) == 1]
            proxy.swallow()
            proxy.cut_all()

            async def noticed() -> bool:
                parts = (await node.call("GET", "/readyz")).body["parts"]
                return not parts["store 1"]["ok"] and bool(node.contexts[1].vitals.postgres.now)

            await wait_for(noticed, 60, "readyz says which store is away")
            ready = await node.call("GET", "/readyz")
            assert ready.status == 200
            assert ready.body["parts"]["store 0"]["ok"]
            assert "store 1" in ready.body["parts"]["store 1"]["detail"]

            ids = await _submit(node)
            assert {node.store_of(one) for one in ids} == {0}
            await _work_off(node, worker, ids)
            gone = await node.call("GET", f"/v1/tasks/{there[0]}")
            assert (gone.status, gone.headers["Retry-After"]) == (503, "1")
            listed = await node.call("GET", "/v1/tasks")
            assert listed.status == 503
            assert "store 1" in listed.body["detail"]

            proxy.pass_on()
            for one in there:
                await _again_until_ok(node, "POST", f"/v1/tasks/{one}/run-now")
            await _work_off(node, worker, there)


async def _again_until_ok(node: RunningStores, method: str, path: str) -> None:
    async def done() -> bool:
        return (await node.call(method, path)).status == 200

    await wait_for(done, 60, f"{path} is answered again")


async def test_a_node_starts_while_one_of_its_stores_is_away(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        ids = await _submit(node, delay=3600)
        there = [one for one in ids if node.store_of(one) == 1]
    async with cutting_proxy(two_stores[1]) as proxy:
        proxy.swallow()
        urls = [two_stores[0], proxy.url]
        short: dict[str, Any] = {"db_statement_timeout_s": 1.0}
        async with (
            running_stores(urls, redis_url, owns=128, **short) as node,
            HandWorker(redis_url) as worker,
        ):
            await worker.live()
            new = await _submit(node, 4)
            await _work_off(node, worker, new)
            assert (await node.call("GET", f"/v1/tasks/{there[0]}")).status == 503
            proxy.pass_on()
            for one in there:
                await _again_until_ok(node, "POST", f"/v1/tasks/{one}/run-now")
            await _work_off(node, worker, there)


async def test_stores_that_do_not_fit_together_are_refused(
    two_stores: list[str], redis_url: str, fresh_database: str
) -> None:
    async with running_stores(two_stores, redis_url):
        pass
    first, second = two_stores
    with pytest.raises(LayoutError, match=r"is store 1: .* in their order"):
        await stores.bring_up([second, first])
    with pytest.raises(LayoutError, match=r"slots 0-127\. Name all of them"):
        await stores.bring_up([first])
    with pytest.raises(LayoutError, match=r"store 1 .* is no store of this cluster"):
        await stores.bring_up([first, fresh_database])


async def test_a_store_that_was_alone_keeps_its_slots_beside_a_new_one(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_node(two_stores[0], redis_url) as alone:
        task = await alone.client.submit("t", delay=3600)
    async with running_stores(two_stores, redis_url) as node:
        assert node.layout.held(0) == frozenset(range(256))
        assert not node.layout.held(1)
        assert (await node.client.get(task.id)).status == "pending"
    with pytest.raises(LayoutError, match="has been used by itself"):
        await _used_by_itself(redis_url, two_stores)


async def _used_by_itself(redis_url: str, urls: list[str]) -> None:
    """The second store as if it had never been one of several, and with a task."""
    connection = await asyncpg.connect(urls[1])
    try:
        await connection.execute("delete from this_store")
        await connection.execute(
            "insert into slots (slot, epoch) select generate_series(0, 255), 1"
        )
    finally:
        await connection.close()
    await stores.bring_up(urls)
