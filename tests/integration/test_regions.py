"""Tasks of other regions: handed on, kept while their region is away, read and changed from here."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cutting_proxy import cutting_proxy
from databases import Databases
from node_rig import RunningNode, running_node
from region_rig import ADMIN, SECRET, TOKENS, Clusters, arrived, free_port, token
from waiting import wait_for

from duly.nodes.regions.messages import FORWARDED_BY
from duly.storage.members import Vanished

pytestmark = pytest.mark.anyio


@pytest.fixture
def clusters(databases: Databases, template_url: str, tmp_path: Path) -> Clusters:
    return Clusters(databases, template_url, tmp_path)


async def submit(node: RunningNode, region: str | None = "eu", **fields: Any) -> Any:
    body = {"type": "t", "delay": 3600, **fields}
    return await node.call(
        "POST", "/v1/tasks", body if region is None else {**body, "region": region}
    )


async def test_a_task_of_another_region_is_handed_there(clusters: Clusters) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        answer = await submit(us, payload={"n": 1}, max_retries=7)
        assert answer.status == 201, answer
        task_id = answer.body["id"]
        assert answer.headers["Location"] == f"/v1/tasks/{task_id}"
        assert answer.headers["ETag"] == '"0"'
        there = await eu.client.get(task_id)
        assert (there.payload, there.max_retries, there.status) == ({"n": 1}, 7, "pending")
        assert (await eu.count(), await us.count()) == (1, 0)
        kept = await arrived(us, UUID(task_id))
        assert (kept.state, kept.body, kept.task_id) == ("delivered", None, UUID(task_id))


async def test_a_task_in_another_region_is_read_and_changed_from_here(clusters: Clusters) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        path = f"/v1/tasks/{(await submit(us)).body['id']}"
        read = await us.call("GET", path)
        assert (read.status, read.body) == (200, (await eu.call("GET", path)).body)
        changed = await us.call("PATCH", path, {"priority": 9}, {"If-Match": '"0"'})
        assert (changed.status, changed.body["priority"], changed.headers["ETag"]) == (
            200,
            9,
            '"1"',
        )
        late = await us.call("PATCH", path, {"priority": 1}, {"If-Match": '"0"'})
        assert late.status == 412
        explained = await us.call("GET", f"{path}/explain")
        assert [one["code"] for one in explained.body["reasons"]][:1] == ["not_due"]
        assert (await us.call("POST", f"{path}/pause")).body["paused"]
        assert (await us.call("POST", f"{path}/cancel")).body["status"] == "cancelled"
        assert (await us.call("POST", f"{path}/cancel")).status == 409
        assert (await us.call("GET", f"{path}/runs?limit=5")).body["items"] == []
        assert (await us.call("GET", f"{path}/runs?limit=x")).fields == ["limit"]
        assert (await us.call("GET", f"{path}?region=eu")).body["status"] == "cancelled"
        assert (await us.call("GET", f"{path}?region=us")).status == 404
        assert (await us.call("GET", f"{path}?region=mars")).fields == ["region"]
        notes = (await eu.call("GET", "/v1/audit?action=cancel")).body["items"]
        assert [(one["who"], one["role"], one["details"]) for one in notes] == [
            ("region", "submit", {"forwarded_by": "us", "for": "ann"})
        ]


async def test_the_own_region_is_here_and_an_unknown_one_is_named(clusters: Clusters) -> None:
    async with clusters.region("us", {"eu": f"http://127.0.0.1:{free_port()}"}) as us:
        assert (await submit(us, "us")).status == 201
        assert await us.count() == 1
        refused = await submit(us, "mars")
        assert (refused.status, refused.fields) == (422, ["region"])
        assert "must be one of us, eu" in refused.body["detail"]
        batch = {"tasks": [{"type": "t"}, {"type": "t", "region": "mars"}]}
        assert (await us.call("POST", "/v1/tasks/batch", batch)).fields == ["tasks[1].region"]


async def test_a_cluster_without_regions_knows_none(node: RunningNode) -> None:
    refused = await submit(node, "eu")
    assert (refused.status, refused.fields) == (422, ["region"])
    assert "no regions" in refused.body["detail"]
    assert (await node.call("GET", "/v1/regions")).body == {"items": []}


async def test_what_waits_for_an_unreachable_region_is_shown_and_changed_as_it_is(
    clusters: Clusters,
) -> None:
    port = free_port()
    async with clusters.region("us", {"eu": f"http://127.0.0.1:{port}"}) as us:
        first = await submit(us, payload=1, idempotency_key="k")
        assert (first.status, first.body["status"]) == (202, "pending")
        waits = first.body["forwarding"]
        assert (waits["region"], waits["state"], waits["problem"]) == ("eu", "waiting", None)
        path = f"/v1/tasks/{first.body['id']}"
        assert first.headers["Location"] == path

        async def failing() -> Any:
            body = (await us.call("GET", path)).body
            return body if body["forwarding"]["error"] and not body["forwarding"]["sent"] else None

        seen = await wait_for(failing, 60, "the task is shown to wait, and why")
        assert (seen["payload"], seen["idempotency_key"]) == (1, "k")
        again = await submit(us, payload=1, idempotency_key="k")
        assert (again.status, again.body["id"]) == (202, first.body["id"])
        assert (await submit(us, payload=2, idempotency_key="k")).status == 409
        reasons = (await us.call("GET", f"{path}/explain")).body["reasons"]
        assert [(one["code"], one["region"]) for one in reasons] == [("in_outbox", "eu")]
        assert (await us.call("GET", f"{path}/runs")).body == {"items": [], "next_cursor": None}
        changed = await us.call("PATCH", path, {"priority": 1})
        assert (changed.status, changed.body["region"]) == (503, "eu")
        assert int(changed.headers["Retry-After"]) > 0
        elsewhere = await us.call("GET", f"/v1/tasks/{UUID(int=7)}?region=eu")
        assert (elsewhere.status, elsewhere.body["region"]) == (503, "eu")
        others = [(await submit(us, payload=n)).body["id"] for n in range(3)]

        cancelled = await us.call("POST", f"/v1/tasks/{others[1]}/cancel")
        while cancelled.status == 503:  # it is being tried in this moment
            cancelled = await us.call("POST", f"/v1/tasks/{others[1]}/cancel")
        assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
        assert (await us.call("POST", f"/v1/tasks/{others[1]}/cancel")).status == 409
        (note,) = (await us.call("GET", "/v1/audit?action=cancel")).body["items"]
        assert (note["who"], note["task_id"]) == ("ann", others[1])
        waiting = (await us.call("GET", "/v1/regions/eu/outbox")).body["items"]
        assert [one["id"] for one in waiting] == [first.body["id"], others[0], others[2]]

        async def counted() -> bool:
            text = (await us.call("GET", "/metrics")).body
            return 'duly_outbox_tasks{region="eu",state="waiting"} 3.0' in text

        await wait_for(counted, 60, "the metric has counted them")

        async with clusters.region("eu", port=port) as eu:
            for task_id in (first.body["id"], others[0], others[2]):
                assert (await arrived(us, UUID(task_id))).state == "delivered"
            assert await eu.count() == 3
            assert (await us.call("GET", path)).body == (await eu.call("GET", path)).body
            gone = await us.call("GET", f"/v1/tasks/{others[1]}")
            assert (gone.status, gone.body["status"]) == (200, "cancelled")
            assert (await eu.call("GET", f"/v1/tasks/{others[1]}")).status == 404
        away = await us.call("GET", path)
        assert (away.status, away.body["region"]) == (503, "eu")


async def test_a_lost_answer_doubles_nothing(clusters: Clusters) -> None:
    async with (
        clusters.region("eu") as eu,
        cutting_proxy(eu.url) as link,
        clusters.region("us", {"eu": link.url.replace("//@", "//")}) as us,
    ):
        for key in (None, "k"):
            link.cut_at(rb"HTTP/1.1 200")
            before = await eu.count()
            answer = await submit(us, idempotency_key=key)
            assert answer.status in (200, 201, 202)
            task_id = UUID(answer.body["id"])
            assert (await arrived(us, task_id)).task_id == task_id
            assert (await eu.count(), link.cuts) == (before + 1, before + 1)


async def test_a_known_key_is_answered_as_its_region_does(clusters: Clusters) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        first = await submit(us, idempotency_key="k", payload=1)
        again = await submit(us, idempotency_key="k", payload=1)
        assert (first.status, again.status) == (201, 200)
        assert again.body["id"] == first.body["id"]
        other = await submit(us, idempotency_key="k", payload=2)
        assert (other.status, other.body["status"]) == (409, 409)
        header = {"Idempotency-Key": "h"}
        body = {"type": "t", "region": "eu"}
        answers = [await us.call("POST", "/v1/tasks", body, header) for _ in range(2)]
        assert [one.status for one in answers] == [201, 200]
        assert await eu.count() == 2


async def test_a_taken_id_is_refused(clusters: Clusters) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        one, two = str(UUID(int=1)), str(UUID(int=2))
        assert (await eu.call("POST", "/v1/tasks", {"type": "t", "id": one})).status == 201
        assert (await us.call("POST", "/v1/tasks", {"type": "t", "id": two})).status == 201
        assert (await submit(us, id=one)).status == 409  # there
        assert (await submit(us, id=two)).status == 409  # here
        three = str(UUID(int=3))
        assert [(await submit(us, id=three)).status for _ in range(2)] == [201, 409]


async def test_a_refused_task_is_kept_and_holds_up_no_other(clusters: Clusters) -> None:
    port = free_port()
    async with clusters.region("us", {"eu": f"http://127.0.0.1:{port}"}) as us:
        large = (await submit(us, payload="x" * 2000)).body["id"]
        small = (await submit(us)).body["id"]
        async with clusters.region("eu", port=port, payload_limit_bytes=1024) as eu:
            assert (await arrived(us, UUID(small))).state == "delivered"
            path = f"/v1/tasks/{large}"
            seen = (await us.call("GET", path)).body
            assert (seen["status"], seen["forwarding"]["state"]) == ("failed", "refused")
            assert (seen["error"]["status"], seen["payload"]) == (413, "x" * 2000)
            assert (await us.call("POST", f"{path}/cancel")).status == 409
            listed = (await us.call("GET", "/v1/regions/eu/outbox?state=refused")).body["items"]
            assert [one["id"] for one in listed] == [large]
            (_, there) = (await us.call("GET", "/v1/regions")).body["items"]
            assert (there["name"], there["waiting"], there["refused"]) == ("eu", 0, 1)
            assert await eu.count() == 1
            direct = await submit(us, payload="x" * 2000)
            assert direct.status == 413
            assert await us.count("forwarded") == 2
        async with clusters.region("eu", port=port) as eu:
            again = await us.call("POST", f"{path}/retry")
            assert (again.status, again.body["forwarding"]["state"]) == (200, "waiting")
            assert (await arrived(us, UUID(large))).state == "delivered"
            assert await eu.count() == 1


async def test_a_batch_over_three_regions_is_kept_whole(clusters: Clusters) -> None:
    port = free_port()
    async with (
        clusters.region("eu") as eu,
        clusters.region("us", {"eu": eu.url, "ap": f"http://127.0.0.1:{port}"}) as us,
    ):
        where = [None, "eu", "ap", "us", "eu", "ap"]
        tasks = [{"type": "t", "delay": 3600, "payload": n} for n in range(6)]
        for task, region in zip(tasks, where, strict=True):
            task |= {} if region is None else {"region": region}
        answer = await us.call("POST", "/v1/tasks/batch", {"tasks": tasks})
        assert (answer.status, answer.body["forwarded"]) == (201, {"eu": 2, "ap": 2})
        ids = answer.body["ids"]
        assert await us.count() == 2
        assert [(await arrived(us, UUID(ids[n]))).state for n in (1, 4)] == ["delivered"] * 2
        assert await eu.count() == 2
        reads = [(await us.call("GET", f"/v1/tasks/{one}")).body for one in ids]
        assert [one["payload"] for one in reads] == list(range(6))
        assert ["forwarding" in one for one in reads] == [n in (2, 5) for n in range(6)]

        taken = {"type": "t", "id": ids[2], "region": "ap"}
        refused = await us.call("POST", "/v1/tasks/batch", {"tasks": [{"type": "t"}, taken]})
        assert (refused.status, refused.fields) == (409, ["tasks[1].id"])
        taken = {"type": "t", "id": ids[0]}
        more = {"type": "t", "region": "ap"}
        refused = await us.call("POST", "/v1/tasks/batch", {"tasks": [more, taken]})
        assert (refused.status, refused.fields) == (409, ["tasks[1].id"])
        assert (await us.count(), await us.count("forwarded")) == (2, 4)
        async with clusters.region("ap", port=port) as ap:
            assert [(await arrived(us, UUID(ids[n]))).state for n in (2, 5)] == ["delivered"] * 2
            assert await ap.count() == 2


async def test_what_was_forwarded_is_not_forwarded_again(clusters: Clusters) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        body = {"type": "t", "region": "eu"}
        looped = await us.call("POST", "/v1/tasks", body, {FORWARDED_BY: "eu"})
        assert (looped.status, looped.fields) == (422, ["region"])
        task_id = (await submit(us)).body["id"]
        read = await us.call("GET", f"/v1/tasks/{task_id}", None, {FORWARDED_BY: "eu"})
        assert read.status == 404
        handed = {"region": "ap", "tasks": []}
        assert (await us.call("POST", "/v1/forwarded", handed)).status == 421


async def test_regions_that_point_at_the_wrong_cluster_lose_nothing(clusters: Clusters) -> None:
    port = free_port()
    async with clusters.region("us", {"eu": f"http://127.0.0.1:{port}"}) as us:
        async with clusters.region("ap", port=port):
            task_id = (await submit(us)).body["id"]

            async def told() -> bool:
                seen = (await us.call("GET", f"/v1/tasks/{task_id}")).body["forwarding"]
                return "421" in (seen["error"] or "") and seen["state"] == "waiting"

            await wait_for(told, 60, "it says what is wrong")
        async with clusters.region("eu", port=port) as eu:
            assert (await arrived(us, UUID(task_id))).state == "delivered"
            assert await eu.count() == 1


async def test_follow_ups_are_handed_on_once_no_older_node_there_would_drop_them(
    clusters: Clusters,
) -> None:
    async with clusters.region("eu") as eu, clusters.region("us", {"eu": eu.url}) as us:
        older = Vanished(b"{}", eu.context.clock.monotonic() + 3600)
        eu.context.members.vanished["older"] = older
        answer = await submit(us, on_success={"type": "next"})
        assert answer.status == 202, answer
        task_id = answer.body["id"]

        async def told() -> bool:
            seen = (await us.call("GET", f"/v1/tasks/{task_id}")).body["forwarding"]
            return "of an older version" in (seen["error"] or "") and seen["state"] == "waiting"

        await wait_for(told, 60, "it says why it waits")
        assert await eu.count() == 0
        del eu.context.members.vanished["older"]
        assert (await arrived(us, UUID(task_id))).state == "delivered"
        there = await eu.client.get(task_id)
        assert there.on_success is not None
        assert there.on_success["type"] == "next"


async def test_a_role_may_do_there_what_it_may_do_here(clusters: Clusters) -> None:
    reader = token("bo", "read", "of-a-reader")
    async with (
        clusters.region("eu") as eu,
        clusters.region("us", {"eu": eu.url}, tokens=(*TOKENS, reader)) as us,
    ):
        path = f"/v1/tasks/{(await submit(us, payload='hush')).body['id']}"
        headers = {"Authorization": "Bearer of-a-reader"}
        seen = await us.call("GET", path, None, headers)
        assert (seen.status, seen.body["payload"], "hush" in str(seen)) == (200, None, False)
        assert (await us.call("POST", f"{path}/cancel", None, headers)).status == 403
        assert SECRET not in str(us.settings)


async def test_a_turn_of_a_killed_node_is_taken_over(clusters: Clusters) -> None:
    port = free_port()
    async with clusters.region("us", {"eu": f"http://127.0.0.1:{port}"}) as us:
        ids = [UUID((await submit(us)).body["id"]) for _ in range(5)]

        async def leave(connection: Any) -> None:  # as a node does that is killed while it sends
            await connection.execute("update forwarded set sent = id = $1", ids[0])
            await connection.execute(
                "update region_turns set holder = 'dead', until = now() + interval '2 seconds'"
            )

        await us.context.db.run(leave)
        async with clusters.region("eu", port=port) as eu:
            for task_id in ids:
                assert (await arrived(us, task_id)).state == "delivered"
            assert await eu.count() == 5


async def test_two_nodes_hand_on_each_task_once(clusters: Clusters) -> None:
    port = free_port()
    others = {"eu": f"http://127.0.0.1:{port}"}
    async with clusters.region("us", others) as one:
        settings = one.settings
        assert settings.database_url is not None
        assert settings.redis_url is not None
        async with running_node(
            settings.database_url, settings.redis_url, owns_slots=False, token=ADMIN,
            tokens=TOKENS, region="us", regions=settings.regions,
        ) as two:  # fmt: skip
            ids = [(await submit((one, two)[n % 2])).body["id"] for n in range(30)]
            async with clusters.region("eu", port=port) as eu:
                both = [submit((one, two)[n % 2]) for n in range(40)]
                answers = await asyncio.gather(*both)
                ids += [answer.body["id"] for answer in answers]
                for task_id in ids:
                    assert (await arrived(one, UUID(task_id))).state == "delivered"
                assert await eu.count() == 70
                assert await one.count("forwarded") == 70
