"""What is set of queues: each change leaves the rest as it is, and is in the audit log."""

from datetime import timedelta
from uuid import UUID

import msgspec
from store_rig import NOW, query

from duly.storage import audit, queues, sweeps, upkeep
from duly.storage.audit import Filter, Note
from duly.storage.database import Database
from duly.storage.permits import Rate
from duly.storage.queues import Control, ControlChange
from duly.storage.slots import Cursor

ANN, BOB = Note("ann", "admin", "queue", '{"queue": "q"}'), Note("bob", "admin", "queue")
LATER = NOW + timedelta(minutes=1)


async def test_a_change_leaves_the_rest_as_it_is(db: Database) -> None:
    limits = ControlChange(set_rate=True, rate=2.5, set_burst=True, burst=7)
    first = await queues.control(db, "q", limits, NOW, ANN)
    assert first == Control("q", rate=2.5, burst=7, updated_at=NOW, updated_by="ann")
    in_flight = ControlChange(set_max_in_flight=True, max_in_flight=3)
    second = await queues.control(db, "q", in_flight, LATER, BOB)
    assert second == first._replace(max_in_flight=3, updated_at=LATER, updated_by="bob")
    third = await queues.control(db, "q", ControlChange(set_rate=True), LATER, BOB)
    assert third == second._replace(rate=None, updated_at=LATER + timedelta(microseconds=1))
    fourth = await queues.control(db, "q", limits, NOW, ANN)  # by a clock that is behind
    assert fourth.updated_at == LATER + timedelta(microseconds=2)
    assert fourth.pace is not None
    assert third._replace(rate=1.0).pace == Rate(1.0, 7, fourth.pace.revision - 1)
    assert await queues.controls(db) == [fourth]


async def test_who_paused_a_queue_stays_until_it_is_resumed(db: Database) -> None:
    paused = await queues.control(db, "q", ControlChange(paused=True), NOW, ANN)
    assert (paused.paused, paused.paused_by, paused.paused_at) == (True, "ann", NOW)
    again = await queues.control(db, "q", ControlChange(paused=True), LATER, BOB)
    assert (again.paused, again.paused_by, again.paused_at) == (True, "ann", NOW)
    other = await queues.control(db, "q", ControlChange(set_rate=True, rate=1.0), LATER, BOB)
    assert (other.paused, other.paused_by, other.paused_at) == (True, "ann", NOW)
    resumed = await queues.control(db, "q", ControlChange(paused=False), LATER, BOB)
    assert (resumed.paused, resumed.paused_by, resumed.paused_at) == (False, None, None)


async def test_a_sweep_tells_of_each_change_by_whatever_clock(db: Database) -> None:
    async def swept() -> int:
        cursor = Cursor(NOW, UUID(int=0))
        found = await sweeps.sweep(db, {7: cursor, 8: cursor}, LATER, 5)
        assert found.names == {}
        assert found.controls == queues.state(await queues.controls(db))
        return found.controls

    states = [await swept()]
    for queue, at in (("q", LATER), ("r", NOW), ("q", NOW), ("r", NOW)):
        await queues.control(db, queue, ControlChange(paused=True), at, ANN)
        states.append(await swept())
    assert states == sorted(set(states))
    assert states[0] == 0


async def test_each_change_is_in_the_audit_log(db: Database) -> None:
    await upkeep.make_partitions(db, NOW.date())
    await queues.control(db, "q", ControlChange(paused=True), NOW, ANN)
    (noted,) = await audit.notes(db, Filter(), None, 10)
    assert (noted.who, noted.action, noted.task_id) == ("ann", "queue", None)
    assert msgspec.json.decode(noted.details or "") == {"queue": "q"}
    assert len(await query(db, "select from audit")) == 1


def test_the_burst_follows_from_the_rate_unless_it_is_set() -> None:
    paces = [Control("q", rate=rate).pace for rate in (0.001, 5.0, 10.0, 201.0)]
    assert [pace.burst for pace in paces if pace is not None] == [1, 1, 1, 21]
    assert Control("q", rate=5.0, burst=30).pace == Rate(5.0, 30)
    assert Control("q", burst=30).pace is None
