"""`duly.Client` against a real node: each of its calls."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from node_rig import RunningNode

from duly.nodes.client import Conflict, Invalid, NotFound, PreconditionFailed, TooLarge
from duly.nodes.client.transport import Transport

FAR = datetime(2040, 1, 1, tzinfo=UTC)


async def test_every_call(node: RunningNode) -> None:
    client = node.client
    number = 73786976294838206464
    task = await client.submit(
        "mail", {"n": number}, run_at=FAR, tags={"team": "a"}, timeout=timedelta(minutes=1)
    )
    assert (task.payload, task.next_run_at, task.timeout) == ({"n": number}, FAR, 60)
    assert await client.get(task.id) == task
    changed = await client.update(task.id, if_match=task.version, priority=9, delay="PT1H")
    assert (changed.priority, changed.version) == (9, 1)
    with pytest.raises(PreconditionFailed):
        await client.update(task.id, if_match=task.version, priority=1)
    ids = await client.submit_batch(
        {"type": "many", "payload": n, "run_at": FAR.isoformat()} for n in range(250)
    )
    assert [one.id async for one in client.list(type="many")] == ids[::-1]
    assert len(await client.list(type="many", limit=120)) == 120
    assert [one.id for one in await client.list(tag="team:a", due_before=FAR)] == [task.id]
    assert (await client.cancel(task.id)).status == "cancelled"
    with pytest.raises(Conflict):
        await client.cancel(task.id)
    with pytest.raises(Conflict):
        await client.retry(task.id)
    assert await client.runs(task.id) == []


@pytest.mark.parametrize("named", [{}, {"idempotency_key": "k"}])
async def test_a_batch_whose_answer_is_lost_is_stored_once(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    once, lost = Transport._once, 0

    async def loses(self: Transport, method: str, *rest: Any) -> bytes:
        nonlocal lost
        answer = await once(self, method, *rest)
        if method == "POST" and lost < 2:
            lost += 1
            raise aiohttp.ServerDisconnectedError
        return answer

    monkeypatch.setattr(Transport, "_once", loses)
    task = {"type": "many", "run_at": FAR.isoformat()}
    ids = await node.client.submit_batch([task | named, task])
    assert lost == (2 if named else 1)  # ids that are known are refused, keys answered
    assert sorted(one.id for one in await node.client.list(type="many")) == sorted(ids)
    assert await node.count() == 2


async def test_errors_are_told_apart(node: RunningNode) -> None:
    client = node.client
    with pytest.raises(NotFound):
        await client.get(uuid4())
    with pytest.raises(Invalid) as invalid:
        await client.submit("not a name")
    assert [error.field for error in invalid.value.errors] == ["type"]
    with pytest.raises(TooLarge):
        await client.submit("a", "x" * 300_000)
    await client.submit("a", 1, run_at=FAR, idempotency_key="k")
    with pytest.raises(Conflict):
        await client.submit("a", 2, run_at=FAR, idempotency_key="k")
    assert await node.count() == 1


async def test_an_own_id_sent_again_under_the_clients_own_key_is_the_same_task(
    node: RunningNode,
) -> None:
    own = uuid4()
    first = await node.client.submit("a", id=own, run_at=FAR, idempotency_key="k")
    again = await node.client.submit("a", id=own, run_at=FAR, idempotency_key="k")
    assert first == again
    assert first.id == own
