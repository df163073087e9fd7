"""Submissions that arrive together share a statement, and every one of them is answered."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest
from actor_rig import served
from firing_rig import Firing, Record, at
from virtual_time import VIRTUAL_TIME

from duly.actors.messages import Schedule, Submit
from duly.actors.runtime import ActorCrashedError, Child, Mailbox, MailboxClosedError, Reply
from duly.actors.runtime.supervisor import Supervisor
from duly.actors.submitter import Submitter
from duly.storage.errors import StoreUnavailableError
from duly.storage.submitting import NewTask, Submitted


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


def new_task(number: int, key: str | None = None) -> NewTask:
    return NewTask(
        id=UUID(int=number), type="t", queue="q", payload="null", due=at(1), max_retries=3,
        backoff=None, timeout=300, misfire_grace=None, on_lost="retry", priority=5, key=key,
        fingerprint=b"f" if key else None, tags="{}", own_id=False,
        created_at=at(0), occurrence=at(1),
    )  # fmt: skip


@dataclass
class Inserts:
    """Stands for PostgreSQL: notes the statements, and fails as told."""

    latency_s: float = 0.01
    statements: list[list[UUID]] = field(default_factory=list)
    keys: dict[str, UUID] = field(default_factory=dict)
    error: Exception | None = None

    async def fetch(self, name: str, *columns: Any) -> list[Record]:
        ids: list[UUID] = columns[0]
        if name == "submit_plain":
            self.statements.append(list(ids))
            await anyio.sleep(self.latency_s)
            if self.error is not None:
                raise self.error
            return [Record({"id": i, "slot": 3, "owner": "node"}) for i in ids]
        assert name == "submit"
        keys = [key for key in columns[11] if key is not None]
        assert len(set(keys)) == len(keys), "PostgreSQL refuses a key twice in one statement"
        self.statements.append(ids)
        await anyio.sleep(self.latency_s)
        if self.error is not None:
            raise self.error
        return [
            self._answer(*one) for one in zip(ids, columns[11] or [None] * len(ids), strict=True)
        ]

    def _answer(self, task_id: UUID, key: str | None) -> Record:
        first = self.keys.setdefault(key, task_id) if key else None
        new = first in (None, task_id)
        answer = Submitted(
            id=task_id,
            slot=3 if new else None,
            created_at=at(0) if new else None,
            slot_owner="node",
            known=not new,
            first_id=first,
            fingerprint=b"f",
        )
        return Record(answer._asdict())


class Rig:
    def __init__(self) -> None:
        self.firing = Firing()
        self.inserts = Inserts()
        self.firing.context.api_db = self.inserts  # type: ignore[assignment]
        self.supervisor = Supervisor(
            "test", [Child("submitter", lambda: Submitter(self.firing.context))]
        )

    @property
    def box(self) -> Mailbox[Submit]:
        return self.firing.context.boxes.submitter

    async def submit(self, number: int, key: str | None = None) -> Submitted:
        reply: Reply[Submitted] = Reply()
        await self.box.send(Submit(new_task(number, key), reply))
        return await reply.wait(10)


async def test_a_lone_submission_goes_at_once() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        began = asyncio.get_running_loop().time()
        answer = await rig.submit(1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)
        assert answer.slot == 3


async def test_those_that_arrive_during_a_statement_share_the_next() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        answers = await asyncio.gather(*(rig.submit(number) for number in range(1, 401)))
    assert [answer.id.int for answer in answers] == list(range(1, 401))
    assert len(rig.inserts.statements) <= 4
    assert sum(map(len, rig.inserts.statements)) == 400


async def test_each_stored_task_is_told_to_the_wheel() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        await asyncio.gather(*(rig.submit(number, "same") for number in range(1, 4)))
        message = await rig.firing.context.boxes.ticker.receive()
    assert isinstance(message, Schedule)
    assert [(row.id.int, row.slot, row.next_run_at) for row in message.rows] == [(1, 3, at(1))]


async def test_a_key_that_comes_several_times_at_once_has_one_first() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        keys = ["a", "a", None, "b", "a", "b"]
        answers = await asyncio.gather(
            *(rig.submit(number, key) for number, key in enumerate(keys, 1))
        )
    assert [answer.first_id and answer.first_id.int for answer in answers] == [1, 1, None, 4, 1, 4]
    assert [answer.slot is not None for answer in answers] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]


async def test_an_asker_who_left_disturbs_nobody() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        leaving = asyncio.create_task(rig.submit(1))
        staying = asyncio.create_task(rig.submit(2))
        await anyio.sleep(0.005)
        leaving.cancel()
        assert (await staying).id.int == 2
        assert (await rig.submit(3)).id.int == 3


async def test_the_store_being_away_fails_these_and_no_later_ones() -> None:
    rig = Rig()
    rig.inserts.error = StoreUnavailableError("away")
    async with served(rig.supervisor):
        answers = await asyncio.gather(
            *(rig.submit(number) for number in range(1, 21)), return_exceptions=True
        )
        assert all(isinstance(answer, StoreUnavailableError) for answer in answers)
        rig.inserts.error = None
        assert (await rig.submit(21)).id.int == 21
        assert [one.restarts for one in rig.supervisor.statistics()] == [0]


async def test_a_crash_answers_every_submission_under_way() -> None:
    rig = Rig()
    rig.inserts.error = RuntimeError("a bug")
    async with served(rig.supervisor):
        first = asyncio.create_task(rig.submit(1))
        await anyio.sleep(0.005)
        second = asyncio.create_task(rig.submit(2))  # its statement is under way at the crash
        await anyio.lowlevel.checkpoint()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        known = (RuntimeError, StoreUnavailableError, ActorCrashedError)
        assert all(isinstance(answer, known) for answer in answers), answers
        rig.inserts.error = None
        assert (await rig.submit(3)).id.int == 3
        assert [one.restarts for one in rig.supervisor.statistics()] == [1]


async def test_a_stop_finishes_what_is_under_way_and_refuses_more() -> None:
    rig = Rig()
    async with served(rig.supervisor):
        asked = asyncio.create_task(rig.submit(1))
        await anyio.sleep(0.005)
    assert (await asked).id.int == 1
    with pytest.raises(MailboxClosedError):
        await rig.submit(2)
