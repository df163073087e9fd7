"""How tasks are handed to a region that answers in all ways: in order, once, and none held up by another."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from fake_region import FakeRegion, fake_region, refuse
from node_rig import RunningNode, running_node
from region_rig import free_port
from waiting import wait_for

from duly.nodes.settings import Region
from duly.storage import forwarding
from duly.wheel.durations import from_us

pytestmark = pytest.mark.anyio

_SOON_S = 60.0


@pytest.fixture
async def region() -> AsyncIterator[FakeRegion]:
    async with fake_region(free_port()) as made:
        yield made


@pytest.fixture
async def us(region: FakeRegion, fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    others = (Region("eu", region.url),)
    async with running_node(fresh_database, redis_url, region="us", regions=others) as node:
        yield node


async def submit(node: RunningNode, **fields: Any) -> str:
    answer = await node.call("POST", "/v1/tasks", {"type": "t", "region": "eu", **fields})
    assert answer.status in (201, 202), answer
    return str(answer.body["id"])


async def state(node: RunningNode, task_id: str) -> str:
    kept = await forwarding.get(node.context.db, UUID(task_id))
    assert kept is not None
    return kept.state


async def all_delivered(node: RunningNode, ids: list[str]) -> None:
    async def look() -> bool:
        return all([await state(node, one) == "delivered" for one in ids])

    await wait_for(look, _SOON_S, "all are delivered")


async def test_tasks_are_handed_on_in_the_order_of_their_submission(
    us: RunningNode, region: FakeRegion
) -> None:
    ids = [await submit(us) for _ in range(5)]
    batch = {"tasks": [{"type": "t", "region": "eu"} for _ in range(450)]}
    ids += (await us.call("POST", "/v1/tasks/batch", batch)).body["ids"]
    ids += [await submit(us) for _ in range(5)]
    await region.start()
    await all_delivered(us, ids)
    assert region.taken == ids
    assert len(region.requests) >= 3  # pages


async def test_order_stays_over_lost_answers_and_outages(
    us: RunningNode, region: FakeRegion
) -> None:
    region.loses = True
    await region.start()
    ids = [await submit(us) for _ in range(3)]
    await wait_for(lambda: region.taken == ids, _SOON_S, "all were sent")
    await region.stop()
    ids += [await submit(us) for _ in range(3)]
    region.loses = False
    await region.start()
    await all_delivered(us, ids)
    assert region.taken == ids


async def test_what_may_have_arrived_is_not_cancelled_here(
    us: RunningNode, region: FakeRegion
) -> None:
    region.loses = True
    await region.start()
    task_id = await submit(us)
    assert region.taken == [task_id]
    await region.stop()  # connections are refused from now on: that says nothing of the first try
    tries = len(region.requests)

    async def refused() -> bool:
        kept = await forwarding.get(us.context.db, UUID(task_id))
        return kept is not None and "Cannot connect" in (kept.error or "")

    await wait_for(refused, _SOON_S, "a try was refused")
    answer = await us.call("POST", f"/v1/tasks/{task_id}/cancel")
    assert (answer.status, answer.body["region"]) == (503, "eu")
    assert "may have arrived" in answer.body["detail"]
    assert len(region.requests) == tries
    region.loses = False
    await region.start()
    await all_delivered(us, [task_id])


async def test_one_task_that_is_too_much_holds_up_no_other(
    us: RunningNode, region: FakeRegion
) -> None:
    ids = [await submit(us, payload=n) for n in range(9)]

    def proxy(asked: list[str]) -> web.Response | None:
        return refuse(413, "too large for the proxy") if ids[4] in asked else None

    region.before = proxy
    await region.start()
    rest = [one for one in ids if one != ids[4]]
    await all_delivered(us, rest)
    assert region.taken == rest
    assert await state(us, ids[4]) == "refused"
    shown = (await us.call("GET", f"/v1/tasks/{ids[4]}")).body
    assert (shown["status"], shown["error"]["detail"]) == ("failed", "too large for the proxy")
    assert (await us.call("GET", f"/v1/tasks/{ids[4]}/explain")).body["status"] == "failed"


@pytest.mark.parametrize("status", [401, 404, 421, 429, 500, 503])
async def test_trouble_with_the_region_is_no_refusal(
    us: RunningNode, region: FakeRegion, status: int
) -> None:
    region.before = lambda _: refuse(status, f"trouble {status}")
    await region.start()
    ids = [await submit(us) for _ in range(2)]

    async def told() -> bool:
        (own, there) = (await us.call("GET", "/v1/regions")).body["items"]
        said = f"trouble {status}" in (there["error"] or "")
        return own["own"] and said and there["waiting"] == 2 and there["failing_since"] is not None

    await wait_for(told, _SOON_S, "it says what fails")
    region.before = lambda _: None
    await all_delivered(us, ids)
    assert region.taken == ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"answers": []}',
        '{"answers": [{"status": "x"}]}',
        "[",
        '{"answers": [{"status": 201}]}',
    ],
)
async def test_an_answer_that_is_none_is_tried_again(
    us: RunningNode, region: FakeRegion, text: str
) -> None:
    region.before = lambda _: web.Response(text=text, content_type="application/json")
    await region.start()
    task_id = await submit(us)
    await wait_for(lambda: len(region.requests) > 1, _SOON_S, "it is tried again")
    region.before = lambda _: None
    await all_delivered(us, [task_id])


async def test_what_was_delivered_is_forgotten_in_time(us: RunningNode, region: FakeRegion) -> None:
    await region.start()
    ids = [await submit(us) for _ in range(3)]
    waits = [await submit(us)]
    await all_delivered(us, ids + waits)

    async def age(connection: Any) -> None:
        await connection.execute(
            "update forwarded set keep_until = now() - interval '1 s' where id = any($1)", ids
        )

    await us.context.db.run(age)

    assert await forwarding.forget(us.context.db, from_us(us.context.clock.now_us()))
    assert await us.count("forwarded") == 1
