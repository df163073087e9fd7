"""What is gathered of refused reports, and how much of it."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest

from duly.actors.context import Context, Vitals
from duly.actors.refusals import Refusals
from duly.storage import ledger
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.ledger import Stale
from duly.wheel.clock import ClusterClock

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Rig:
    """A clock that the test moves, and a store that takes what it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.written: list[Stale] = []
        self.batches: list[int] = []
        self.away = False
        clock = ClusterClock(lambda: self.now_s)
        clock.observe(self.now_s, self.now_s, round(time.time() * 1e6))
        self.vitals = Vitals()
        context = SimpleNamespace(clock=clock, vitals=self.vitals, db=None)
        self.refusals = Refusals(cast(Context, context))
        monkeypatch.setattr(ledger, "reject", self._reject)

    async def _reject(self, _: object, stale: list[Stale], now: datetime) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        if any("\0" in (one.error or "") for one in stale):
            raise asyncpg.UntranslatableCharacterError("NUL")
        self.batches.append(len(stale))
        self.written += stale

    def add(self, *ended: Ended, recorded: Any = ()) -> None:
        self.refusals.add(ended, recorded)

    @property
    def times(self) -> dict[tuple[int, str, str | None], int]:
        return {(one.token, one.outcome, one.worker): one.times for one in self.written}


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def ended(task_id: UUID, token: int = 1, outcome: Any = "completed", **more: Any) -> Ended:
    return Ended(task_id, token, outcome, "w", NOW, NOW, **more)


async def test_the_same_report_is_one_row_with_a_count(rig: Rig) -> None:
    one = ended(uuid4())
    for _ in range(5):
        rig.add(one, one)
    rig.add(one._replace(outcome="failed"), one._replace(worker=None))
    await rig.refusals.write()
    assert rig.times == {(1, "completed", "w"): 10, (1, "failed", "w"): 1, (1, "completed", ""): 1}
    await rig.refusals.write()
    assert len(rig.batches) == 1


async def test_what_was_recorded_is_left_out_but_not_what_repeats_it(rig: Rig) -> None:
    one, other = ended(uuid4()), ended(uuid4())
    rig.add(one, other, other._replace(outcome="failed"), recorded={(other.id, 1)})
    await rig.refusals.write()
    assert [(s.id, s.outcome) for s in rig.written] == [(one.id, "completed"), (other.id, "failed")]


async def test_of_one_task_so_many_and_the_rest_counted(rig: Rig) -> None:
    task_id = uuid4()
    rig.add(*(ended(task_id, token) for token in range(1, 101)))
    await rig.refusals.write()
    assert len(rig.written) == 21
    assert rig.times[0, "more", ""] == 80
    rig.add(ended(task_id, 500))
    await rig.refusals.write()
    assert rig.times[500, "completed", "w"] == 1


async def test_of_all_tasks_so_many_at_once_and_a_second(rig: Rig) -> None:
    rig.add(*(ended(uuid4()) for _ in range(10_100)))
    assert rig.vitals.unkept_reports == 100
    await rig.refusals.write()
    assert len(rig.written) == 10_000
    assert max(rig.batches) == 500
    rig.now_s += 2
    rig.add(*(ended(uuid4()) for _ in range(150)))
    await rig.refusals.write()
    assert (len(rig.written), rig.vitals.unkept_reports) == (10_100, 150)


async def test_what_is_not_taken_now_is_written_later(rig: Rig) -> None:
    one, other = ended(uuid4()), ended(uuid4())
    rig.add(one, other)
    rig.away = True
    await rig.refusals.write()
    rig.add(one)
    rig.away = False
    await rig.refusals.write()
    assert {s.id: s.times for s in rig.written} == {one.id: 2, other.id: 1}


async def test_an_error_that_cannot_be_stored_is_left_out(rig: Rig) -> None:
    some = [ended(uuid4(), error='"fine"'), ended(uuid4(), error='"\0"'), ended(uuid4())]
    rig.add(*some)
    await rig.refusals.write()
    assert {s.id: s.error for s in rig.written} == {
        some[0].id: '"fine"', some[1].id: None, some[2].id: None,
    }  # fmt: skip


async def test_a_long_error_is_cut(rig: Rig) -> None:
    rig.add(ended(uuid4(), error='"' + "x" * 100_000 + '"'))
    await rig.refusals.write()
    assert rig.written[0].error is not None
    assert len(rig.written[0].error) < 1_200
