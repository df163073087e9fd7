"""`exactly_once` and the occurrence, from submission to outcome: a node, a worker, a user's database."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from effects_rig import Effects, by_asyncpg, looking
from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

from duly.nodes.client import Task
from duly.nodes.worker import Context, Fail, Snooze, Worker

NOW_AND_THEN = {"kind": "fixed", "delay": 0, "jitter": 0}


@pytest.fixture
async def effects(blank_database: str) -> AsyncIterator[Effects]:
    async with looking(blank_database) as made:
        yield made


async def becomes(node: RunningNode, task_id: UUID, status: str) -> Task:
    async def look() -> Task | None:
        task = await node.client.get(task_id)
        return task if task.status == status else None

    return await wait_for(look, 30, f"the task is {status}")


class Payments:
    """A worker that applies an effect, and then does what the test wants of each attempt."""

    def __init__(self, redis_url: str, database_url: str) -> None:
        self.worker = Worker(redis_url)
        self.seen: list[Context] = []
        self.after: list[BaseException | None] = []
        self._url = database_url
        self.worker.task("pay")(self._pay)

    async def _pay(self, ctx: Context, payload: Any) -> Any:
        self.seen.append(ctx)
        fate = self.after.pop(0) if self.after else None
        if isinstance(fate, Snooze):
            raise fate
        async with by_asyncpg(self._url) as connection, ctx.exactly_once(connection) as effect:
            await connection.execute("insert into effects default values")
            effect.result = {"paid_by": ctx.token, "what": payload}
        if fate is not None:
            raise fate
        return effect.result

    async def attempts(self, count: int) -> None:
        """Wait until so many attempts have begun."""
        await wait_for(lambda: len(self.seen) == count, 30, f"{count} attempts")

    def one_occurrence(self) -> None:
        """Every attempt so far had the same due time and key, and a higher token than before."""
        assert len({ctx.due for ctx in self.seen}) == 1
        assert len({ctx.headers()["Idempotency-Key"] for ctx in self.seen}) == 1
        tokens = [ctx.token for ctx in self.seen]
        assert tokens == sorted(set(tokens))


@pytest.fixture
async def payments(
    redis_url: str, blank_database: str, effects: Effects
) -> AsyncIterator[Payments]:
    made = Payments(redis_url, blank_database)
    async with running(made.worker):
        yield made


async def test_a_failure_after_the_effect_ends_completed_with_its_result(
    node: RunningNode, payments: Payments, effects: Effects
) -> None:
    payments.after = [LookupError("after the commit")]
    due = datetime.now(UTC)
    task = await node.client.submit("pay", 5, run_at=due, backoff=NOW_AND_THEN)
    ended = await becomes(node, task.id, "completed")
    assert ended.result == {"paid_by": payments.seen[0].token, "what": 5}
    assert await effects.applied() == 1
    payments.one_occurrence()
    assert [ctx.due for ctx in payments.seen] == [due, due]


async def test_a_retry_by_a_person_does_not_apply_the_effect_again(
    node: RunningNode, payments: Payments, effects: Effects
) -> None:
    payments.after = [Fail("after the commit")]
    task = await node.client.submit("pay", 5)
    await becomes(node, task.id, "failed")
    assert (await node.call("POST", f"/v1/tasks/{task.id}/retry")).status == 200
    ended = await becomes(node, task.id, "completed")
    assert ended.result == {"paid_by": payments.seen[0].token, "what": 5}
    assert await effects.applied() == 1
    payments.one_occurrence()


async def test_snoozes_and_changes_in_between_stay_one_occurrence(
    node: RunningNode, payments: Payments, effects: Effects
) -> None:
    payments.after = [Snooze(3600), LookupError("after the commit")]
    task = await node.client.submit("pay", 5, backoff={**NOW_AND_THEN, "delay": 3600})
    path = f"/v1/tasks/{task.id}"
    for attempts in (1, 2):
        await payments.attempts(attempts)
        await becomes(node, task.id, "pending")
        assert (await node.call("PATCH", path, {"delay": 0, "payload": 6})).status == 200
    ended = await becomes(node, task.id, "completed")
    # What was applied counts, also if the payload was changed after it.
    assert ended.result == {"paid_by": payments.seen[1].token, "what": 6}
    assert await effects.applied() == 1
    payments.one_occurrence()


async def test_a_new_time_before_the_first_attempt_is_a_new_occurrence(
    node: RunningNode, payments: Payments, effects: Effects
) -> None:
    task = await node.client.submit("pay", 5, delay=3600)
    changed = await node.call("PATCH", f"/v1/tasks/{task.id}", {"delay": 0})
    await becomes(node, task.id, "completed")
    (ctx,) = payments.seen
    assert ctx.due == datetime.fromisoformat(changed.body["next_run_at"])
