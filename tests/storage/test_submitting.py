"""Submissions of plain tasks: a shorter statement, and the same row as the long one makes."""

import random
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from store_rig import ME, NOW, new_task, own_all, query

from duly.storage import submitting
from duly.storage.database import Database
from duly.storage.submitting import NewTask, Rejected

LATER = NOW + timedelta(seconds=5)
UNTIL = NOW + timedelta(hours=1)
_ROW = (
    "select to_jsonb(t) - array['id', 'slot', 'idempotency_key'] as row from tasks t where id = $1"
)


def varied(rng: random.Random) -> NewTask:
    """A plain task; of each field there are few values, so that they are often alike."""
    return new_task(
        type=rng.choice("ab"),
        queue=rng.choice("qr"),
        payload=rng.choice(('{"n": 1}', "null", "1.10")),
        due=NOW + timedelta(microseconds=rng.choice((0, 1))),
        max_retries=rng.choice((0, 3)),
        backoff=rng.choice((None, '{"kind": "fixed"}', '{"kind": "none"}')),
        timeout=rng.choice((0.5, 300.0)),
        priority=rng.choice((0, 9)),
        tags=rng.choice(("{}", '{"a": "b"}')),
        traceparent=rng.choice((None, "00-1-2-01")),
        created_at=NOW - timedelta(microseconds=rng.choice((0, 7))),
    )


async def row(db: Database, task: NewTask) -> Any:
    return (await query(db, _ROW, task.id))[0]["row"]


@pytest.mark.parametrize("seed", range(12))
async def test_a_plain_task_is_stored_as_one_with_a_key_is(db: Database, seed: int) -> None:
    rng = random.Random(seed)
    plain = [varied(rng) for _ in range(rng.choice((1, 2, 5)))]
    keyed = [t._replace(id=uuid4(), key=str(n), fingerprint=b"f") for n, t in enumerate(plain)]
    answers = await submitting.submit(db, plain, NOW, UNTIL)
    assert {(a.id, a.created_at) for a in answers} == {(t.id, t.created_at) for t in plain}
    await submitting.submit(db, keyed, NOW, UNTIL)
    assert [await row(db, task) for task in plain] == [await row(db, task) for task in keyed]


async def test_an_id_that_is_taken_is_told_and_the_others_are_stored(db: Database) -> None:
    first, other = new_task(), new_task()
    await submitting.submit(db, [first], NOW, UNTIL)
    answers = await submitting.submit(db, [first._replace(payload="2"), other], NOW, UNTIL)
    told = {answer.id: (answer.slot is not None, answer.known) for answer in answers}
    assert told == {first.id: (False, False), other.id: (True, False)}
    with pytest.raises(Rejected):
        await submitting.submit_all(db, [first, new_task()], NOW, UNTIL)
    assert len(await query(db, "select from tasks")) == 2


async def test_owners_of_slots_are_told_of_what_is_due_soon(db: Database) -> None:
    await own_all(db)
    soon, late = new_task(due=NOW), new_task(due=LATER)
    answers = await submitting.submit(db, [soon, late], NOW, UNTIL, LATER)
    assert {a.id: a.slot_owner for a in answers} == {soon.id: ME, late.id: None}
    answers = await submitting.submit(db, [new_task(due=LATER)], NOW, UNTIL)
    assert [answer.slot_owner for answer in answers] == [ME]
