"""`duly.Client` against a small API that follows the contract."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import anyio.to_thread
import pytest
from fake_api import FakeApi

import duly


async def test_a_submission_sends_what_was_given_and_returns_the_task(
    api: FakeApi, client: duly.Client
) -> None:
    task_id = uuid4()
    task = await client.submit(
        "email.send",
        {"to": "a"},
        run_at=datetime(2030, 1, 1, tzinfo=UTC),
        queue="mail",
        priority=9,
        max_retries=5,
        backoff={"kind": "fixed", "delay": 1},
        timeout=timedelta(minutes=5),
        misfire_grace=None,
        on_lost="fail",
        tags={"k": "v"},
        concurrency_key="c",
        concurrency_limit=3,
        fairness_key="f",
        region="eu",
        idempotency_key="key",
        id=task_id,
    )
    ((method, path, body, headers),) = api.requests
    assert (method, path) == ("POST", "/v1/tasks")
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "type": "email.send",
        "payload": {"to": "a"},
        "run_at": "2030-01-01T00:00:00+00:00",
        "queue": "mail",
        "priority": 9,
        "max_retries": 5,
        "backoff": {"kind": "fixed", "delay": 1},
        "timeout": 300.0,
        "misfire_grace": None,
        "on_lost": "fail",
        "tags": {"k": "v"},
        "concurrency_key": "c",
        "concurrency_limit": 3,
        "fairness_key": "f",
        "region": "eu",
        "idempotency_key": "key",
        "id": str(task_id),
    }
    assert isinstance(task, duly.Task)
    assert (task.id, task.status, task.version) == (task_id, "pending", 1)
    assert task.created_at == datetime(2026, 11, 29, 12, 0, 0, 1, tzinfo=UTC)


async def test_what_is_not_given_is_not_sent(api: FakeApi, client: duly.Client) -> None:
    await client.submit("t", run_at=None, delay=None)
    await client.submit("t", delay=1800)
    await client.submit("t", delay="PT5M")
    bodies = [body for _, _, body, _ in api.requests]
    assert all(len(body.pop("idempotency_key")) == 32 for body in bodies)
    assert bodies == [
        {"type": "t", "payload": None},
        {"type": "t", "payload": None, "delay": 1800},
        {"type": "t", "payload": None, "delay": "PT5M"},
    ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"run_at": datetime(2030, 1, 1)}, ValueError, "run_at needs a time zone"),
        ({"run_at": 5}, TypeError, "run_at is a datetime or text"),
        ({"delay": math.nan}, ValueError, "delay is a finite number"),
        ({"delay": True}, TypeError, "delay is seconds"),
        ({"colour": "red"}, TypeError, "unknown option 'colour'"),
        ({"payload": math.nan}, ValueError, "NaN"),
        ({"payload": "\x00"}, ValueError, "NUL"),
        ({"payload": object()}, TypeError, "unsupported"),
    ],
)
async def test_wrong_arguments_are_named_before_anything_is_sent(
    api: FakeApi, client: duly.Client, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await client.submit("t", **options)
    with pytest.raises(TypeError, match="needs a type"):
        await client.submit_batch([{"payload": 1}])
    with pytest.raises(TypeError, match="nothing to change"):
        await client.update(uuid4())
    assert api.requests == []


async def test_c42_numbers_come_back_exact(api: FakeApi, client: duly.Client) -> None:
    """C42: the client shows the stored value, not the nearest float."""
    digits = "9" * 5000
    api.raw_payload = f'{{"id": 73786976294838206464, "f": 1e400, "h": 0.1, "long": {digits}}}'
    task = await client.submit("t", {"n": 73786976294838206464, "d": Decimal("1e400")})
    assert task.payload == {
        "id": 73786976294838206464,
        "f": Decimal("1e400"),
        "h": 0.1,
        "long": Decimal(digits),
    }
    assert api.requests[0][2]["payload"]["n"] == 73786976294838206464


async def test_a_batch_returns_the_ids_in_order(api: FakeApi, client: duly.Client) -> None:
    ids = await client.submit_batch(
        [{"type": "a", "delay": timedelta(seconds=5)}, {"type": "b", "payload": 1}]
    )
    assert [api.tasks[str(task_id)]["type"] for task_id in ids] == ["a", "b"]
    assert all(isinstance(task_id, UUID) for task_id in ids)
    assert api.requests[0][2] == {
        "tasks": [
            {"type": "a", "delay": 5.0, "id": str(ids[0])},
            {"type": "b", "payload": 1, "id": str(ids[1])},
        ]
    }
    assert [task_id.version for task_id in ids] == [7, 7]


async def test_a_task_can_be_waited_for(api: FakeApi, client: duly.Client) -> None:
    task = await client.submit("t")
    with pytest.raises(TimeoutError, match=f"{task.id} was not over after 0.1 s"):
        await client.wait(task.id, 0.1)
    (listed,) = await client.list()
    waits = [asyncio.create_task(one.wait(30)) for one in (task, listed)]
    api.tasks[str(task.id)]["status"] = "completed"
    for over in await asyncio.gather(*waits):
        assert (over.id, over.status) == (task.id, "completed")
    with pytest.raises(duly.NotFound):
        await client.wait(uuid4())


async def test_a_task_of_another_loop_cannot_be_waited_for_here(
    api: FakeApi, client: duly.Client
) -> None:
    task = await client.submit("t")

    def elsewhere() -> duly.Task:
        with duly.SyncClient(api.url) as other:
            return other.get(task.id)

    sync = await anyio.to_thread.run_sync(elsewhere)
    for one in (sync, duly.Task(id=task.id, type="t", status="pending")):
        with pytest.raises(RuntimeError, match=r"client\.wait\(task\.id\)"):
            await one.wait()


async def test_lists_are_fetched_page_by_page(api: FakeApi, client: duly.Client) -> None:
    for number in range(250):
        api.add({"type": "t", "payload": number})
    seen = [task.payload async for task in client.list(status="pending", tag="k:v")]
    assert seen == list(range(249, -1, -1))
    assert [path for _, path, _, _ in api.requests] == [
        "/v1/tasks?status=pending&tag=k:v&limit=100",
        "/v1/tasks?status=pending&tag=k:v&cursor=100&limit=100",
        "/v1/tasks?status=pending&tag=k:v&cursor=200&limit=100",
    ]
    assert len(await client.list(limit=120)) == 120
    assert await client.list(limit=0) == []
    assert await client.list(status="failed") == []
    with pytest.raises(ValueError, match="limit"):
        client.list(limit=-1)


async def test_times_of_a_search_are_written_with_their_offset(
    api: FakeApi, client: duly.Client
) -> None:
    await client.list(due_before=datetime(2030, 1, 1, tzinfo=UTC), due_after="2029-01-01T00:00Z")
    assert api.requests[0][1] == (
        "/v1/tasks?due_before=2030-01-01T00:00:00%2B00:00&due_after=2029-01-01T00:00Z&limit=100"
    )
    with pytest.raises(ValueError, match="due_after needs a time zone"):
        client.list(due_after=datetime(2030, 1, 1))


async def test_the_life_of_a_task(api: FakeApi, client: duly.Client) -> None:
    task = await client.submit("t")
    assert (await client.get(task.id)).id == task.id
    assert (await client.get(str(task.id))).id == task.id
    changed = await client.update(task.id, if_match=task.version, priority=7, misfire_grace=None)
    assert (changed.priority, changed.version) == (7, 2)
    assert api.requests[-1][2] == {"priority": 7, "misfire_grace": None}
    with pytest.raises(duly.PreconditionFailed):
        await client.update(task.id, if_match=1, priority=8)
    assert (await client.cancel(task.id)).status == "cancelled"
    with pytest.raises(duly.Conflict):
        await client.cancel(task.id)
    assert (await client.retry(task.id)).status == "pending"
    assert (await client.pause(task.id)).paused
    assert not (await client.resume(task.id)).paused
    assert api.requests[-1][1] == f"/v1/tasks/{task.id}/resume"
    await client.run_now(task.id)
    assert api.requests[-1][1] == f"/v1/tasks/{task.id}/run-now"
    runs = await client.runs(task.id, limit=150)
    assert [run.attempt for run in runs[:2]] == [250, 249]
    assert (runs[0].task_id, runs[0].error) == (task.id, {"n": 250})
    assert len(runs) == 150


async def test_the_ledger(api: FakeApi, client: duly.Client) -> None:
    task = await client.submit("t")
    found = await client.ledger(task.id)
    assert len(found) == 150
    (run,), (rejected,) = found[0].attempts, found[0].rejected
    assert (found[0].verdict, run.outcome, rejected.times) == (None, "lost", 3)
    assert (found[1].reason, found[1].through) == ("ended", datetime(2026, 11, 29, 12, tzinfo=UTC))
    verdicts = await client.verdicts(
        since=datetime(2026, 11, 29, tzinfo=UTC), type="t", verdict="rejected", limit=120
    )
    assert len(verdicts) == 120
    assert (verdicts[3].task_id, verdicts[3].error) == (UUID(int=3), {"n": 3})
    assert api.requests[-1][1] == (
        "/v1/ledger?type=t&verdict=rejected&since=2026-11-29T00:00:00%2B00:00&cursor=100&limit=20"
    )
    with pytest.raises(ValueError, match="until needs a time zone"):
        client.verdicts(until=datetime(2030, 1, 1))


async def test_schedules_are_written_as_json(api: FakeApi, client: duly.Client) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    for given, said in (
        (duly.Every(30), {"every": 30}),
        (duly.Every(timedelta(hours=1), start_at=start, max_runs=3),
         {"every": 3600.0, "start_at": "2030-01-01T00:00:00+00:00", "max_runs": 3}),
        (duly.Every(60, expect_within=timedelta(minutes=5), pause_after=4),
         {"every": 60, "expect_within": 300.0, "pause_after": 4}),
        (duly.Every("PT1H", jitter=timedelta(minutes=1)), {"every": "PT1H", "jitter": 60.0}),
        (duly.Cron("0 3 * * *"), {"cron": "0 3 * * *", "timezone": "UTC"}),
        (duly.Cron("0 3 * * *", "Europe/Berlin", end_at="2031-01-01T00:00:00Z", dst={"gap": "skip"}),
         {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "end_at": "2031-01-01T00:00:00Z",
          "dst": {"gap": "skip"}}),
        ({"every": timedelta(seconds=5)}, {"every": 5.0}),
    ):  # fmt: skip
        task = await client.submit("t", schedule=given, overrun="queue")
        assert (api.requests[-1][2]["schedule"], api.requests[-1][2]["overrun"]) == (said, "queue")
        await client.update(task.id, schedule=given)
        assert api.requests[-1][2] == {"schedule": said}
    with pytest.raises(ValueError, match=r"schedule\.start_at needs a time zone"):
        await client.submit("t", schedule=duly.Every(1, start_at=datetime(2030, 1, 1)))
    with pytest.raises(TypeError, match="schedule is an Every, a Cron or a mapping"):
        await client.submit("t", schedule="0 3 * * *")  # type: ignore[arg-type]  # the point


async def test_an_id_cannot_lead_elsewhere(api: FakeApi, client: duly.Client) -> None:
    with pytest.raises(duly.NotFound):
        await client.get("../nodes?x=1")
    assert api.requests[0][1] == "/v1/tasks/..%2Fnodes%3Fx=1"


async def test_connections_are_used_again(api: FakeApi, client: duly.Client) -> None:
    for _ in range(5):
        await client.submit("t")
    assert len(api.connections) == 1


async def test_a_closed_client_says_so(api: FakeApi) -> None:
    client = duly.Client(api.url)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.get(uuid4())
    await client.close()


@pytest.mark.parametrize("options", [{"base_url": "localhost:8080"}, {"timeout_s": 0}])
def test_wrong_settings_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        duly.Client(**options)


async def test_why_a_task_has_not_run(api: FakeApi, client: duly.Client) -> None:
    task = await client.submit("t")
    found = await client.explain(task.id)
    assert (found.task_id, found.status) == (task.id, "pending")
    assert [reason["code"] for reason in found.reasons] == ["not_due", "no_worker"]
    assert found.reasons[0]["later"] == 1.5
    with pytest.raises(duly.NotFound):
        await client.explain(uuid4())


async def test_who_is_there(client: duly.Client) -> None:
    old, new = await client.nodes()
    assert (old.id, old.slots, old.version, old.redis) == ("old", 128, None, None)
    assert (new.redis, new.postgres, new.wheel_entries) == (False, True, 5)
    quiet, told = await client.workers()
    assert (quiet.id, quiet.queues, quiet.running, quiet.held) == ("other", None, None, 2)
    assert (told.queues, told.concurrency, told.running) == (("mail", "x"), 50, 3)


async def test_queues(api: FakeApi, client: duly.Client) -> None:
    queue = await client.update_queue("a/b", paused=True, burst=None)
    assert (queue.queue, queue.paused, queue.workers, queue.next_token_at) == ("a/b", True, 2, None)
    method, path, body, _ = api.requests[-1]
    assert (method, path, body) == ("PUT", "/v1/queues/a%2Fb", {"paused": True, "burst": None})
    assert await client.queue("a/b") == queue
    for number in range(150):
        await client.queue(f"q{number:03}")
    names = [one.queue async for one in client.queues()]
    assert names == ["a/b", *(f"q{number:03}" for number in range(150))]
    with pytest.raises(TypeError, match="nothing to change"):
        await client.update_queue("q")
    with pytest.raises(TypeError, match="unknown option 'speed'"):
        await client.update_queue("q", speed=3)  # type: ignore[call-arg]  # the point of the test
