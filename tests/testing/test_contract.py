"""What a test may rely on, whichever cluster it uses."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import duly
from duly.testing import NotSettled
from duly.testing.harness import START, Harness

AT = timedelta


class Notes:
    """A worker whose handlers note when they ran, by the cluster's clock."""

    def __init__(self, harness: Harness) -> None:
        self.times: list[tuple[str, timedelta]] = []
        self.attempts: list[int] = []
        self.worker = duly.Worker("redis://nowhere:1/0", queues=["default", "other"])
        self._harness = harness
        self.worker.task("note")(self.note)
        self.worker.task("thread")(self.thread)

    async def note(self, ctx: duly.Context, payload: Any) -> Any:
        self.seen(ctx, payload)
        return {"was": payload}

    def thread(self, ctx: duly.Context, payload: Any) -> None:
        self.seen(ctx, payload)

    def seen(self, ctx: duly.Context, payload: Any) -> None:
        self.times.append((str(payload), self._harness.now - START))
        self.attempts.append(ctx.attempt)


@pytest.fixture
def notes(harness: Harness) -> Notes:
    return Notes(harness)


async def test_what_is_due_now_runs_by_itself(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        task = await cluster.client.submit("note", "a")
        over = await task.wait(60)
    assert (over.status, over.result) == ("completed", {"was": "a"})
    assert over.created_at == over.started_at == over.finished_at == START
    assert notes.times == [("a", AT())]


async def test_all_that_comes_due_runs_in_order_at_its_own_time(
    harness: Harness, notes: Notes
) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        submit = cluster.client.submit
        await submit("note", "third", delay=timedelta(hours=30))
        await submit("thread", "first", delay=60)
        await submit("note", "second", run_at=START + AT(hours=2), queue="other")
        last = await submit("note", "last", run_at=START + AT(days=2, microseconds=1))
        await cluster.advance(days=2)
        assert cluster.now == START + AT(days=2)
        assert (await cluster.client.get(last.id)).status == "pending"
        await cluster.advance(seconds=1)
        assert cluster.now == START + AT(days=2, seconds=1)
    assert notes.times == [
        ("first", AT(minutes=1)), ("second", AT(hours=2)), ("third", AT(hours=30)),
        ("last", AT(days=2, microseconds=1)),
    ]  # fmt: skip


async def test_nothing_comes_due_before_its_time(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        task = await cluster.client.submit("note", "a", delay=1)
        await cluster.advance(seconds=0.999999)
        assert (await cluster.client.get(task.id)).status == "pending"
        assert notes.times == []
        await cluster.advance(seconds=0.000001)
        assert (await cluster.client.get(task.id)).status == "completed"


async def test_what_a_handler_submits_runs_within_the_same_advance(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    seen = []

    async with harness as cluster:

        @worker.task("chain")
        async def chain(ctx: duly.Context, left: int) -> None:
            seen.append((left, cluster.now - START))
            if left:
                await cluster.client.submit("chain", left - 1, delay=3600)

        await cluster.start(worker)
        await cluster.client.submit("chain", 3, delay=3600)
        await cluster.advance(hours=3, minutes=30)
    assert seen == [(3, AT(hours=1)), (2, AT(hours=2)), (1, AT(hours=3))]


async def test_a_period_has_each_of_its_occurrences(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        every = duly.Every(3600, start_at=START + AT(hours=1))
        task = await cluster.client.submit("note", "tick", schedule=every)
        await cluster.advance(hours=4)
        now = await cluster.client.get(task.id)
        runs = await cluster.client.runs(task.id)
    assert notes.times == [("tick", AT(hours=hour)) for hour in (1, 2, 3, 4)]
    assert (now.status, now.next_run_at) == ("pending", START + AT(hours=5))
    assert [run.occurrence for run in runs] == [START + AT(hours=hour) for hour in (4, 3, 2, 1)]
    assert {run.outcome for run in runs} == {"completed"}


async def test_cron_goes_by_its_time_zone_until_its_runs_are_over(
    harness: Harness, notes: Notes
) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        cron = duly.Cron("30 9 * * MON-FRI", timezone="Europe/Berlin", max_runs=4)
        task = await cluster.client.submit("note", "report", schedule=cron)
        await cluster.advance(days=10)
        over = await cluster.client.get(task.id)
    times = [START + when for _, when in notes.times]
    assert times == [datetime(2030, 1, day, 8, 30, tzinfo=UTC) for day in (1, 2, 3, 4)]
    assert over.status == "completed"


async def test_a_failure_is_tried_again_after_its_back_off(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    tried = []

    async with harness as cluster:

        @worker.task("flaky")
        async def flaky(ctx: duly.Context) -> str:
            tried.append((ctx.attempt, cluster.now - START))
            if ctx.attempt < 3:
                raise OSError("not yet")
            return "at last"

        await cluster.start(worker)
        backoff = {"kind": "exponential", "delay": 60, "factor": 10, "jitter": 0}
        task = await cluster.client.submit("flaky", backoff=backoff)
        await cluster.settle()
        waiting = await cluster.client.get(task.id)
        await cluster.advance(hours=1)
        over = await cluster.client.get(task.id)
        runs = await cluster.client.runs(task.id)
    assert tried == [(1, AT()), (2, AT(minutes=1)), (3, AT(minutes=11))]
    assert (waiting.status, waiting.retry_count) == ("pending", 1)
    assert waiting.next_run_at == START + AT(minutes=1)
    assert waiting.error["message"] == "not yet"
    assert (over.status, over.result, over.retry_count) == ("completed", "at last", 2)
    assert over.finished_at == START + AT(minutes=11)
    assert [(run.outcome, run.attempt) for run in runs] == [
        ("completed", 3), ("failed", 2), ("failed", 1),
    ]  # fmt: skip


async def test_failed_for_good_and_made_to_try_again(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    broken = [True]

    @worker.task("careful")
    def careful(ctx: duly.Context) -> str:
        if broken[0]:
            raise duly.Fail("no such account")
        return "done"

    async with harness as cluster:
        await cluster.start(worker)
        task = await cluster.client.submit("careful")
        await cluster.settle()
        failed = await cluster.client.get(task.id)
        broken[0] = False
        await cluster.client.retry(task.id)
        await cluster.settle()
        over = await cluster.client.get(task.id)
        with pytest.raises(duly.Conflict, match="only a failed task can be retried"):
            await cluster.client.retry(task.id)
    assert (failed.status, failed.retry_count) == ("failed", 0)
    assert failed.error["message"] == "no such account"
    assert (over.status, over.result) == ("completed", "done")


async def test_retries_run_out(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")

    @worker.task("hopeless")
    async def hopeless(ctx: duly.Context) -> None:
        raise duly.Retry(delay=timedelta(minutes=5))

    async with harness as cluster:
        await cluster.start(worker)
        task = await cluster.client.submit("hopeless", max_retries=2)
        await cluster.advance(days=1)
        over = await cluster.client.get(task.id)
    assert (over.status, over.retry_count) == ("failed", 2)
    assert over.finished_at == START + AT(minutes=10)


async def test_a_snooze_takes_no_retry(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    seen = []

    async with harness as cluster:

        @worker.task("office.hours")
        async def office_hours(ctx: duly.Context) -> None:
            seen.append((ctx.attempt, cluster.now.hour))
            if cluster.now.hour < 2:
                raise duly.Snooze(3600)

        await cluster.start(worker)
        task = await cluster.client.submit("office.hours")
        await cluster.advance(hours=5)
        over = await cluster.client.get(task.id)
    assert seen == [(1, 0), (1, 1), (1, 2)]
    assert (over.status, over.retry_count) == ("completed", 0)


async def test_what_is_cancelled_never_runs(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        task = await cluster.client.submit("note", "a", delay=60)
        cancelled = await cluster.client.cancel(task.id)
        await cluster.advance(hours=1)
        with pytest.raises(duly.Conflict, match="only an unfinished task can be cancelled"):
            await cluster.client.cancel(task.id)
        over = await cluster.client.get(task.id)
    assert cancelled.status == over.status == "cancelled"
    assert notes.times == []


async def test_a_running_handler_is_cancelled(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    began, ended = asyncio.Event(), asyncio.Event()

    @worker.task("endless")
    async def endless(ctx: duly.Context) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with harness as cluster:
        await cluster.start(worker)
        task = await cluster.client.submit("endless")
        async with asyncio.timeout(60):
            await began.wait()
            await cluster.client.cancel(task.id)
            await ended.wait()
        await cluster.settle()
        runs = await cluster.client.runs(task.id)
    assert [run.outcome for run in runs] == ["cancelled"]


async def test_a_key_makes_one_task_for_a_day(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        submit = cluster.client.submit
        one = await submit("note", {"n": 1}, idempotency_key="k")
        two = await submit("note", {"n": 1.0}, idempotency_key="k")
        with pytest.raises(duly.Conflict, match="used with another body"):
            await submit("note", {"n": 2}, idempotency_key="k")
        await cluster.advance(hours=25)
    assert one.id == two.id
    assert len(notes.times) == 1


async def test_a_name_is_of_one_unfinished_task(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        submit = cluster.client.submit
        one = await submit("note", 1, name="reports/nightly", delay=60)
        two = await submit("note", 1, name="reports/nightly", delay=60)
        with pytest.raises(duly.Conflict, match="with another payload"):
            await submit("note", 2, name="reports/nightly", delay=60)
        named = await cluster.client.get_by_name("reports/nightly")
        await cluster.advance(seconds=60)
        with pytest.raises(duly.NotFound):
            await cluster.client.get_by_name("reports/nightly")
        three = await submit("note", 2, name="reports/nightly", delay=60)
    assert one.id == two.id == named.id != three.id


async def test_an_id_is_of_one_task(harness: Harness) -> None:
    async with harness as cluster:
        task = await cluster.client.submit("note", delay=60)
        with pytest.raises(duly.Conflict, match=f"409 .*there is a task with the id {task.id}"):
            await cluster.client.submit("note", delay=60, id=task.id)


async def test_a_batch_is_taken_whole_or_not(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        client = cluster.client
        ids = await client.submit_batch({"type": "note", "payload": n} for n in range(5))
        with pytest.raises(duly.Invalid, match=r"tasks\[1\].type"):
            await client.submit_batch([{"type": "note"}, {"type": "no spaces"}])
        many = await client.submit_many(({"type": "thread"} for _ in range(7)), batch_size=3)
        await cluster.settle()
        done = await client.list(status="completed")
    assert len(ids) == 5
    assert {task.id for task in done} == {*ids, *many}
    assert len(notes.times) == 12


async def test_a_list_is_filtered(harness: Harness) -> None:
    async with harness as cluster:
        submit, lists = cluster.client.submit, cluster.client.list
        a = await submit("a", delay=60, tags={"team": "red"})
        b = await submit("b", delay=120, queue="other", name="team/b")
        assert [t.id for t in await lists(type="a")] == [a.id]
        assert [t.id for t in await lists(queue="other", status="pending")] == [b.id]
        assert [t.id for t in await lists(tag="team:red")] == [a.id]
        assert [t.id for t in await lists(due_before=START + AT(seconds=120))] == [a.id]
        assert [t.id for t in await lists(due_after=START + AT(seconds=120))] == [b.id]
        assert [t.id for t in await lists(name="team/b")] == [b.id]
        assert {t.id for t in await lists()} == {a.id, b.id}
        assert len(await lists(limit=1)) == 1


async def test_wrong_input_is_refused_by_field(harness: Harness) -> None:
    async with harness as cluster:
        with pytest.raises(duly.Invalid, match="priority"):
            await cluster.client.submit("note", priority=10)
        with pytest.raises(duly.Invalid, match=r"schedule\.cron"):
            await cluster.client.submit("note", schedule=duly.Cron("61 * * * *"))
        with pytest.raises(duly.NotFound):
            await cluster.client.get("00000000-0000-0000-0000-000000000000")


async def test_as_many_run_with_a_key_as_may(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    running, most = [0], [0]

    @worker.task("narrow")
    async def narrow(ctx: duly.Context) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1

    async with harness as cluster:
        await cluster.start(worker)
        await cluster.client.submit_batch(
            {"type": "narrow", "concurrency_key": "tenant"} for _ in range(4)
        )
        await cluster.settle()
        done = await cluster.client.list(status="completed")
    assert len(done) == 4
    assert most == [1]


class Email(msgspec.Struct):
    to: str


async def test_payloads_lifespan_and_middleware_are_those_of_the_worker(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")
    seen = []

    @worker.lifespan
    async def pool() -> AsyncIterator[str]:
        seen.append("opened")
        yield "pool"
        seen.append("closed")

    @worker.middleware
    async def around(ctx: duly.Context, call_next: duly.Next) -> object:
        seen.append("around")
        return await call_next(ctx)

    @worker.task("email")
    async def email(ctx: duly.Context, payload: Email) -> None:
        seen.append(f"{ctx.state} {payload.to}")

    async with harness as cluster:
        await cluster.start(worker)
        await cluster.client.submit("email", {"to": "ada"})
        bad = await cluster.client.submit("email", {"to": 1})
        await cluster.settle()
        failed = await cluster.client.get(bad.id)
    assert (failed.status, failed.error["type"]) == ("failed", "invalid_payload")
    assert seen == ["opened", "around", "pool ada", "closed"]


async def test_an_error_of_the_lifespan_is_raised_by_start(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0")

    @worker.lifespan
    async def pool() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    async with harness as cluster:
        with pytest.raises(OSError, match="no database"):
            await cluster.start(worker)


async def test_what_has_no_handler_holds_nothing_up(harness: Harness, notes: Notes) -> None:
    async with harness as cluster:
        await cluster.start(notes.worker)
        await cluster.client.submit("unknown")
        await cluster.client.submit("note", "elsewhere", queue="far")
        await cluster.client.submit("note", "a", delay=60)
        await cluster.advance(hours=1)
    assert notes.times == [("a", AT(minutes=1))]


async def test_a_worker_finds_what_was_due_before_it_started(
    harness: Harness, notes: Notes
) -> None:
    async with harness as cluster:
        await cluster.client.submit("note", "a", delay=60)
        await cluster.advance(hours=1)
        await cluster.start(notes.worker)
        await cluster.settle()
    assert notes.times == [("a", AT(hours=1))]


async def test_time_does_not_go_back(harness: Harness) -> None:
    async with harness as cluster:
        with pytest.raises(ValueError, match="does not go back"):
            await cluster.advance(seconds=-1)
        with pytest.raises(ValueError, match="does not go back"):
            await cluster.advance_to(START - AT(days=1))


async def test_a_handler_that_does_not_end_is_named(harness: Harness) -> None:
    worker = duly.Worker("redis://nowhere:1/0", drain_timeout_s=0)
    harness._patience_s = 2.0

    @worker.task("stuck")
    async def stuck(ctx: duly.Context) -> None:
        await asyncio.Event().wait()

    async with harness as cluster:
        await cluster.start(worker)
        task = await cluster.client.submit("stuck")
        with pytest.raises(NotSettled, match=f"1 tasks did not end within 2 s: stuck {task.id}"):
            await cluster.settle()
