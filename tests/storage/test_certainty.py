"""Writes whose answer is lost: done once, and answered as if nothing had happened."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest
from cutting_proxy import CuttingProxy, cutting_proxy
from store_rig import (
    ME,
    NOW,
    claimed,
    ended,
    new_task,
    opened,
    outcomes,
    over,
    own_all,
    query,
    statuses,
    submit,
)

from duly.storage import claims, submitting, tasks
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import DueRow
from duly.storage.submitting import NewTask, Rejected, Submitted
from duly.storage.tasks import Change

LATER = NOW + timedelta(seconds=5)
UNTIL = NOW + timedelta(hours=1)


class Store(NamedTuple):
    """A pool that reaches its server through a proxy."""

    db: Database
    proxy: CuttingProxy


@pytest.fixture
async def store(fresh_database: str) -> AsyncIterator[Store]:
    async with cutting_proxy(fresh_database) as proxy, opened(proxy.url) as db:
        yield Store(db, proxy)


Cut = Callable[[], Awaitable[None]]


@pytest.fixture(params=["before", "after"])
def cut(request: pytest.FixtureRequest, store: Store) -> Cut:
    """Await it: the connection is lost before the next statement arrives, or after it has ended."""
    return lambda: arm(store, request.param)


@pytest.fixture(params=["before", "after", "commit"])
def cut_transaction(request: pytest.FixtureRequest, store: Store) -> Cut:
    """The same for a transaction: before it, after its first statement, or after its commit."""
    return lambda: arm(store, request.param)


async def arm(store: Store, where: str) -> None:
    await warm_up(store.db)
    if where == "before":
        store.proxy.cut_before()
    elif where == "after":
        store.proxy.cut_at()
    else:
        store.proxy.cut_at(rb"COMMIT\x00")


async def warm_up(db: Database) -> None:
    """So that the connection's next statement is the one meant, and none to prepare it."""
    (unused,) = await submitting.submit(
        db, [new_task(own_id=True, created_at=NOW - timedelta(1))], NOW, UNTIL
    )
    await tasks.patch(db, unused.id, Change(priority=1), None, NOW)
    await tasks.retry(db, unused.id, NOW)
    nobodys = DueRow(unused.id, 0, NOW, 99, 5, "default")
    await claims.claim(db, ME, [nobodys], {0: 0}, NOW)
    await tasks.cancel(db, unused.id, NOW)


Submit = Callable[[Database, list[NewTask]], Awaitable[list[Submitted]]]


async def one_by_one(db: Database, new: list[NewTask]) -> list[Submitted]:
    return await submitting.submit(db, new, NOW, UNTIL)


async def all_or_none(db: Database, new: list[NewTask]) -> list[Submitted]:
    return await submitting.submit_all(db, new, NOW, UNTIL)


@pytest.mark.parametrize("put", [one_by_one, all_or_none])
async def test_a_submission_is_stored_once(store: Store, cut_transaction: Cut, put: Submit) -> None:
    await put(store.db, [new_task(key="known", fingerprint=b"1"), new_task(own_id=True)])
    new = [
        new_task(),
        new_task(key="k", fingerprint=b"1"),
        new_task(own_id=True),
        new_task(own_id=True, key="o", fingerprint=b"1"),
        new_task(key="known", fingerprint=b"1"),
    ]
    await cut_transaction()
    answers = {answer.id: answer for answer in await put(store.db, new)}
    assert store.proxy.cuts == 1
    assert set(answers) == {task.id for task in new}
    for task in new[:-1]:
        assert answers[task.id].created_at == NOW
        assert answers[task.id].slot is not None
        assert not answers[task.id].known
    assert answers[new[-1].id].known
    assert len(await query(store.db, "select from tasks")) == 6
    assert len(await query(store.db, "select from idempotency_keys")) == 3


@pytest.mark.parametrize("put", [one_by_one, all_or_none])
async def test_plain_tasks_are_stored_once(store: Store, cut: Cut, put: Submit) -> None:
    new = [new_task(), new_task(payload="2")]
    await put(store.db, [new_task(created_at=NOW - timedelta(1))])  # prepares the statement
    await cut()
    answers = await put(store.db, new)
    assert store.proxy.cuts == 1
    assert {(a.id, a.created_at, a.slot is not None) for a in answers} == {
        (task.id, NOW, True) for task in new
    }
    assert len(await query(store.db, "select from tasks where created_at = $1", NOW)) == 2


async def test_a_stored_task_that_has_been_run_meanwhile_is_not_stored_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the lost answer and the look, a worker has done it."""
    epochs, new = await own_all(store.db), new_task()
    settled = StoreUnavailableError.settled

    async def settled_and_run(self: StoreUnavailableError, within_s: float = 5.0) -> None:
        await settled(self, within_s)
        slot = (await query(store.db, "select slot from tasks where id = $1", new.id))[0]["slot"]
        row = DueRow(new.id, slot, NOW, 0, 5, "default")
        claim = await claims.claim(store.db, ME, [row], epochs, NOW)
        await claims.complete(store.db, [ended(claim.tasks[0])], LATER)

    await warm_up(store.db)
    monkeypatch.setattr(StoreUnavailableError, "settled", settled_and_run)
    store.proxy.cut_at()
    (answer,) = await one_by_one(store.db, [new])
    assert (answer.id, answer.created_at, answer.slot_owner) == (new.id, NOW, None)
    assert await statuses(store.db, [new.id]) == ["completed"]


async def test_a_refused_batch_is_refused_all_the_same(store: Store, cut_transaction: Cut) -> None:
    taken = new_task(own_id=True, created_at=NOW - timedelta(1))
    await submitting.submit(store.db, [taken], NOW, UNTIL)
    await cut_transaction()
    with pytest.raises(Rejected) as caught:
        await all_or_none(store.db, [new_task(), taken._replace(payload="2", created_at=NOW)])
    assert len(caught.value.answers) == 2
    assert len(await query(store.db, "select from tasks")) == 1


async def test_a_cancel_is_done(store: Store, cut: Cut) -> None:
    (pending,) = await submit(store.db)
    (running,) = await claimed(store.db)
    for task_id, token in ((pending.id, 0), (running.id, running.token)):
        await cut()
        done = await tasks.cancel(store.db, task_id, LATER)
        assert done is not None
        assert (done.row.status, done.token) == ("cancelled", token)
        assert done.row.version == token + 1
    assert store.proxy.cuts == 2
    assert await outcomes(store.db, running.id) == ["cancelled"]


@pytest.mark.parametrize("if_version", [None, 0])
async def test_a_change_is_made_once(store: Store, cut: Cut, if_version: int | None) -> None:
    (row,) = await submit(store.db)
    await cut()
    done = await tasks.patch(store.db, row.id, Change(priority=1), if_version, LATER)
    assert done is not None
    assert done.changed
    assert (done.row.priority, done.row.version) == (1, 1)
    await cut()
    refused = await tasks.patch(store.db, row.id, Change(priority=2), 7, LATER)
    assert refused is not None
    if refused.row.updated_at != LATER:
        assert not refused.changed
    assert (refused.row.priority, refused.row.version) == (1, 1)


async def test_a_retry_is_made_once(store: Store, cut: Cut) -> None:
    (task,) = await claimed(store.db)
    await claims.settle(store.db, [over(ended(task, "failed"))], NOW)
    await cut()
    done = await tasks.retry(store.db, task.id, LATER)
    assert done is not None
    assert (done.changed, done.row.status, done.row.version) == (True, "pending", 2)
    assert await statuses(store.db, [task.id]) == ["pending"]


async def test_a_claim_is_read_back(store: Store, cut: Cut) -> None:
    rows, epochs = await submit(store.db, 5), await own_all(store.db)
    await cut()
    with pytest.raises(StoreUnavailableError) as caught:
        await claims.claim(store.db, ME, rows, epochs, NOW)
    assert caught.value.in_doubt
    await caught.value.settled(30)
    found = await claims.claimed_by(store.db, ME, rows, NOW)
    if not found:
        found = (await claims.claim(store.db, ME, rows, epochs, NOW)).tasks
    assert {task.id for task in found} == {row.id for row in rows}
    assert {task.token for task in found} == {1}


async def test_an_id_that_is_not_ours_is_not_taken_for_it(
    store: Store, cut_transaction: Cut
) -> None:
    taken: UUID = uuid4()
    await submitting.submit(
        store.db, [new_task(id=taken, own_id=True, created_at=NOW - timedelta(1))], NOW, UNTIL
    )
    await cut_transaction()
    (answer,) = await one_by_one(store.db, [new_task(id=taken, own_id=True)])
    assert (answer.slot, answer.known) == (None, False)
