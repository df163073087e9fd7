"""What the client does when the node refuses, is slow, or cannot be reached."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from fake_api import FakeApi, hang_up, problem, refuse

import duly
from duly.nodes.client.errors import from_answer


@pytest.fixture
async def client(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[duly.Client]:
    monkeypatch.setattr("duly.nodes.client.transport.FIRST_WAIT_S", 0.01)
    async with duly.Client(api.url, timeout_s=60) as made:
        yield made


async def slow(request: web.Request) -> None:
    await asyncio.sleep(4)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, duly.Invalid),
        (401, duly.Unauthorized),
        (403, duly.Unauthorized),
        (404, duly.NotFound),
        (409, duly.Conflict),
        (412, duly.PreconditionFailed),
        (413, duly.TooLarge),
        (415, duly.Invalid),
        (422, duly.Invalid),
        (302, duly.ApiError),
        (500, duly.ApiError),
    ],
)
async def test_each_status_has_its_error(
    api: FakeApi, client: duly.Client, status: int, error: type[duly.ApiError]
) -> None:
    api.before = [refuse(status, Location="/elsewhere")]
    with pytest.raises(error) as caught:
        await client.submit("t")
    assert type(caught.value) is error
    assert isinstance(caught.value, duly.DulyError)
    assert caught.value.status == status
    assert caught.value.problem["detail"] == "not now"
    assert len(api.requests) == 1


async def test_wrong_fields_are_named(api: FakeApi, client: duly.Client) -> None:
    async def wrong(request: web.Request) -> web.StreamResponse:
        named = [{"field": "payload.n", "message": "not finite"}, {"field": "queue"}]
        return problem(422, "two fields are wrong", errors=named)

    api.before = [wrong]
    with pytest.raises(duly.Invalid) as caught:
        await client.submit("t")
    assert [error.field for error in caught.value.errors] == ["payload.n", "queue"]
    assert str(caught.value).startswith("422 two fields are wrong; payload.n: not finite")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway", b"[1]", b'{"errors":5}', b"\xff"])
def test_an_error_page_of_any_kind_is_understood(body: bytes) -> None:
    error = from_answer(500, body, None)
    assert error.errors == ()
    assert str(error).startswith("500 ")


async def test_a_submission_whose_answer_is_lost_makes_one_task(
    api: FakeApi, client: duly.Client
) -> None:
    api.after = [hang_up, hang_up]
    task = await client.submit("t")
    assert list(api.tasks) == [str(task.id)]
    assert len({body["idempotency_key"] for _, _, body, _ in api.requests}) == 1
    assert len(api.requests) == 3


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_submission_is_repeated_when_the_node_cannot(
    api: FakeApi, client: duly.Client, status: int
) -> None:
    api.before = [refuse(status), refuse(status)]
    await client.submit("t")
    assert len(api.tasks) == 1


async def test_three_attempts_are_enough(api: FakeApi, client: duly.Client) -> None:
    api.before = [refuse(503, Retry_After="0")] * 5
    with pytest.raises(duly.Unavailable) as caught:
        await client.submit("t")
    assert caught.value.retry_after_s == 0
    assert len(api.requests) == 3
    api.before = [hang_up] * 5
    with pytest.raises(duly.Unreachable):
        await client.submit("t")
    assert len(api.requests) == 6


async def test_the_node_says_how_long_to_wait(api: FakeApi, client: duly.Client) -> None:
    api.before = [refuse(503, Retry_After="0.3")]
    begin = time.monotonic()
    await client.submit("t")
    assert time.monotonic() - begin >= 0.3
    api.before = [refuse(503, Retry_After="3600")]
    with pytest.raises(duly.Unavailable) as caught:
        await client.submit("t")
    assert caught.value.retry_after_s == 3600
    api.before = [refuse(503, Retry_After="Wed, 21 Oct 2030 07:28:00 GMT")]
    await client.submit("t")


async def test_a_slow_answer_is_a_lost_answer(api: FakeApi) -> None:
    async with duly.Client(api.url, timeout_s=1) as client:
        api.before = [slow]
        await client.submit("t")
        api.before = [slow]
        with pytest.raises(duly.Unreachable, match="PATCH"):
            await client.update(next(iter(api.tasks)), priority=1)


async def test_reading_is_repeated(api: FakeApi, client: duly.Client) -> None:
    task = await client.submit("t")
    api.before = [hang_up, refuse(503)]
    assert (await client.get(task.id)).id == task.id
    api.before = [refuse(503), hang_up]
    assert len(await client.list()) == 1


async def test_a_change_whose_fate_is_unknown_is_not_repeated(
    api: FakeApi, client: duly.Client
) -> None:
    task = await client.submit("t")
    calls: list[Callable[[], Coroutine[Any, Any, duly.Task]]] = [
        lambda: client.cancel(task.id),
        lambda: client.retry(task.id),
        lambda: client.update(task.id, priority=1),
    ]
    for call in calls:
        sent = len(api.requests)
        api.before = [hang_up]
        with pytest.raises(duly.Unreachable):
            await call()
        api.before = [refuse(503)]
        with pytest.raises(duly.Unavailable):
            await call()
        assert len(api.requests) == sent + 2
    api.before = [hang_up]
    with pytest.raises(duly.Unreachable):
        await client.submit_batch([{"type": "t", "id": uuid4()}])
    assert len(api.tasks) == 1


async def test_a_batch_whose_answer_is_lost_makes_each_task_once(
    api: FakeApi, client: duly.Client
) -> None:
    api.before, api.after = [hang_up], [hang_up]
    ids = await client.submit_batch([{"type": "t"}] * 3)
    assert [str(one) for one in ids] == list(api.tasks)
    assert len(api.requests) == 4  # not arrived, answer lost, refused as known, looked for

    api.after = [hang_up]
    ids = await client.submit_batch([{"type": "t", "idempotency_key": "k"}, {"type": "t"}])
    first, again = (body["tasks"] for _, path, body, _ in api.requests[-2:])
    assert first == again
    assert first[0]["idempotency_key"] == "k"
    assert first[1]["idempotency_key"]


async def test_an_id_that_another_has_is_a_conflict(api: FakeApi, client: duly.Client) -> None:
    there = await client.submit("t")
    with pytest.raises(duly.Conflict):
        await client.submit_batch([{"type": "t", "id": there.id}])
    api.before = [refuse(409)]
    with pytest.raises(duly.Conflict):  # and no task of this batch is there
        await client.submit_batch([{"type": "t"}])


async def test_a_change_that_was_surely_not_done_is_repeated(
    api: FakeApi, client: duly.Client
) -> None:
    task = await client.submit("t")
    api.before = [refuse(429), refuse(429)]
    assert (await client.cancel(task.id)).status == "cancelled"


async def test_no_node_at_all(api: FakeApi, client: duly.Client) -> None:
    await api.server.close()
    with pytest.raises(duly.Unreachable, match="Cannot connect"):
        await client.cancel(uuid4())


async def test_a_cancelled_call_leaves_no_answer_for_the_next(
    api: FakeApi, client: duly.Client
) -> None:
    tasks = [await client.submit("t", number) for number in range(3)]
    for number in range(30):
        call = asyncio.create_task(client.get(tasks[0].id))
        for _ in range(number):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await client.get(tasks[number % 3].id)).payload == number % 3
