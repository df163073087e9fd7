"""Bulk actions of the client: what is sent, and what comes back."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from fake_api import FakeApi

import duly

YEAR = datetime(2030, 1, 1, tzinfo=UTC)


async def test_a_look_sends_the_filter_and_changes_nothing(
    api: FakeApi, client: duly.Client
) -> None:
    task = await client.submit("t")
    found = await client.bulk.preview(
        "reschedule",
        {"id": UUID(int=7), "tag": "a:1", "due_before": YEAR, "paused": False},
        delay=timedelta(minutes=5),
    )
    method, path, body, _ = api.requests[-1]
    assert (method, path) == ("POST", "/v1/bulk")
    assert body == {
        "action": "reschedule", "dry_run": True, "delay": 300.0,
        "filter": {"id": str(UUID(int=7)), "tag": "a:1", "due_before": YEAR.isoformat(), "paused": False},
    }  # fmt: skip
    assert (found.count, found.exact, [one.id for one in found.sample]) == (
        12_345,
        False,
        [task.id],
    )


async def test_a_job_from_its_beginning_to_its_end(api: FakeApi, client: duly.Client) -> None:
    job = await client.bulk.begin("reschedule", {"queue": "q"}, rate=50, run_at=YEAR)
    assert api.requests[-1][2] == {
        "action": "reschedule", "filter": {"queue": "q"}, "rate": 50, "run_at": YEAR.isoformat(),
    }  # fmt: skip
    assert (job.status, job.filter, job.run_at, job.total) == ("running", {"queue": "q"}, YEAR, 3)
    assert (await client.bulk.stop(job.id)).status == "stopping"
    assert (await client.bulk.job(job.id)).done == 1
    ended = await client.bulk.job(str(job.id))
    assert (ended.status, ended.done) == ("done", 3)
    assert ended.finished_at is not None
    assert [one.id async for one in client.bulk.jobs()] == [job.id]


async def test_mistakes(client: duly.Client) -> None:
    with pytest.raises(TypeError, match="unknown filter 'colour'"):
        await client.bulk.begin("cancel", {"colour": "red"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match="needs a time zone"):
        await client.bulk.preview("cancel", {"due_after": datetime(2030, 1, 1)})
    with pytest.raises(duly.NotFound):
        await client.bulk.job(uuid4())
