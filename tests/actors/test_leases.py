"""The lease actor with lease servers that answer as the test says, on a real store."""

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import asyncpg
import pytest
from store_rig import NOW, query
from waiting import wait_for

from duly.actors import leases
from duly.actors.context import Context
from duly.actors.leases import LeaseActor
from duly.actors.messages import Ownership, Refused
from duly.storage import slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.leases import Held, LeaseServers
from duly.storage.members import Members

ALL = frozenset(range(slots.SLOTS))
TTL_S = 4.0


class FakeServers:
    """Grants what is in `free`; `answering` of three servers answer."""

    majority = 2

    def __init__(self) -> None:
        self.free = ALL
        self.answering = 3
        self.inside_cluster: str | None = None
        self.valid_s = TTL_S
        self.forgot: frozenset[int] = frozenset()
        """Free only because servers have lost what they knew of these."""
        self.released: list[int] = []

    async def take(self, wanted: Sequence[int], early: Collection[int] = ()) -> Held:
        held = self._held(wanted)
        young = held.slots & self.forgot
        return held._replace(
            slots=held.slots - young | young & set(early), young=young & set(early)
        )

    async def renew(self, wanted: Sequence[int]) -> Held:
        return self._held(wanted)

    async def release(self, given: Sequence[int]) -> None:
        self.released += given

    def _held(self, wanted: Sequence[int]) -> Held:
        granted = self.free & set(wanted) if self.answering >= self.majority else frozenset()
        return Held(frozenset(granted), self.valid_s, self.answering)


class FakeClock:
    """A monotonic clock that the test sets; the cluster's clock stays the real one."""

    error_us = 0

    def __init__(self, context: Context) -> None:
        self.at = 1000.0
        self._now_us = context.clock.now_us

    def monotonic(self) -> float:
        return self.at

    def now_us(self) -> int:
        return self._now_us()


class Rig:
    def __init__(self, context: Context) -> None:
        self.servers = FakeServers()
        self.clock = FakeClock(context)
        self.context = replace(
            context,
            clock=self.clock,  # type: ignore[arg-type]  # has what the actor needs
            lease_servers=cast(LeaseServers, self.servers),
        )
        self.actor = LeaseActor(self.context)

    async def round(self) -> Ownership:
        """One renewal and one look; what it told the dispatcher."""
        await self.actor._renew()
        await self.actor._look()
        messages = await self.context.boxes.dispatcher.receive_batch(64)
        self.context.boxes.dispatcher.handled()
        told = messages[-1]
        assert isinstance(told, Ownership)
        return told


@pytest.fixture
def rig(context: Context) -> Rig:
    return Rig(context)


@asynccontextmanager
async def another_member(redis_url: str) -> AsyncIterator[None]:
    """A second node that has registered; it leaves at the end."""
    members = Members(redis_url, "other", 60, 5)
    try:
        await members.beat(b"{}")
        await members.beat(b"{}")
        yield
        await members.leave()
    finally:
        await members.close()


@asynccontextmanager
async def session(url: str, name: str) -> AsyncIterator[Any]:
    """A session of that name that holds the row of slot 1, as a claim does."""
    connection = await asyncpg.connect(url, server_settings={"application_name": name}, timeout=20)
    try:
        await connection.execute("begin")
        await connection.execute("select from slots where slot = 1 for share")
        yield connection
    finally:
        connection.terminate()


async def owners(rig: Rig) -> set[str | None]:
    """Who owns slots by what PostgreSQL knows."""
    states = await slots.states(rig.context.db, range(slots.SLOTS))
    return {state.owner for state in states.values()}


async def test_it_takes_what_is_free_with_a_higher_epoch(rig: Rig) -> None:
    told = await rig.round()
    assert set(told.epochs) == ALL
    assert set(told.epochs.values()) == {1}
    assert told.valid_until == rig.clock.at + TTL_S - 0.5
    assert rig.context.vitals.owned_slots == slots.SLOTS


async def test_a_renewal_extends_and_keeps_the_epochs(rig: Rig) -> None:
    first = await rig.round()
    rig.clock.at += 1
    second = await rig.round()
    assert second == Ownership(first.epochs, first.valid_until + 1)


async def test_c17_what_was_lost_is_given_up_at_once(rig: Rig) -> None:
    await rig.round()
    rig.servers.free = ALL - {1, 2, 3}
    told = await rig.round()
    assert set(told.epochs) == ALL - {1, 2, 3}
    rig.servers.free = ALL
    told = await rig.round()
    assert {told.epochs[1], told.epochs[4]} == {1, 2}  # taken anew: a higher epoch


async def test_c19_without_a_majority_it_owns_until_its_time_is_over(rig: Rig) -> None:
    first = await rig.round()
    rig.servers.answering = 1
    rig.clock.at += 1
    assert await rig.round() == first  # not a moment longer, and not a moment less
    assert "renewing leases" in rig.context.vitals.redis.now
    rig.clock.at = first.valid_until
    assert (await rig.round()).epochs == {}
    assert rig.context.vitals.owned_slots == 0
    rig.servers.answering = 2
    told = await rig.round()
    assert set(told.epochs.values()) == {2}
    assert not rig.context.vitals.redis.now


async def test_lease_servers_of_a_redis_cluster_are_told_of(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.servers.inside_cluster = "server 2 is of a cluster"
    for _ in range(3):
        await rig.round()
    said = "using all lease servers fails, trying on: server 2 is of a cluster"
    assert caplog.messages.count(said) == 1
    assert not rig.context.vitals.redis.now, "a majority is enough"
    rig.servers.answering = 1
    await rig.round()
    assert rig.context.vitals.redis.now["renewing leases"].detail == (
        "no majority of the lease servers answers; server 2 is of a cluster"
    )
    rig.servers.answering, rig.servers.inside_cluster = 3, None
    caplog.set_level(logging.INFO)
    await rig.round()
    assert any("using all lease servers works again" in line for line in caplog.messages)
    assert not rig.context.vitals.redis.now


async def test_c18_nothing_is_owned_while_no_server_answers(rig: Rig) -> None:
    rig.servers.answering = 0
    for _ in range(3):
        assert (await rig.round()).epochs == {}
    assert rig.servers.released == []


async def test_leases_go_back_when_the_store_cannot_raise_the_epochs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> slots.Taken:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(slots, "take", gone)
    assert (await rig.round()).epochs == {}
    assert rig.servers.released == sorted(ALL)
    monkeypatch.undo()
    assert set((await rig.round()).epochs) == ALL


async def test_leases_that_took_longer_than_their_life_are_not_used(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = slots.take

    async def slow(db: object, *rest: object) -> slots.Taken:
        rig.clock.at += TTL_S
        return await real(db, *rest)  # type: ignore[arg-type]  # hands on what it was given

    monkeypatch.setattr(slots, "take", slow)
    assert (await rig.round()).epochs == {}
    assert rig.servers.released == sorted(ALL)


async def test_a_slot_that_stays_locked_does_not_cost_those_that_were_gained(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = slots.take, list[None]()

    async def one_locked(db: Any, wanted: Sequence[int], *rest: Any) -> slots.Taken:
        tries.append(None)
        if len(tries) > 1:
            rig.clock.at += TTL_S  # until its lease is over; the others' were renewed meanwhile
            return slots.Taken({}, {7: "old"})
        taken = await real(db, [slot for slot in wanted if slot != 7], *rest)
        return taken._replace(busy={7: "old"})

    monkeypatch.setattr(slots, "take", one_locked)
    await rig.actor._look()
    assert rig.servers.released == [7]


async def test_a_later_gain_does_not_lengthen_what_was_held(rig: Rig) -> None:
    rig.servers.free = ALL - {9}
    first = await rig.round()
    rig.servers.answering = 3
    rig.servers.free = ALL
    rig.servers.valid_s = 2.0  # a renewal that counts for less
    told = await rig.round()
    assert set(told.epochs) == ALL
    assert told.valid_until < first.valid_until


async def test_a_stop_gives_everything_back(rig: Rig) -> None:
    await rig.round()
    await rig.actor.stopped()
    assert sorted(rig.servers.released) == sorted(ALL)


async def test_an_actor_that_restarted_owns_again(rig: Rig) -> None:
    first = await rig.round()
    rig.actor = LeaseActor(rig.context)
    second = await rig.round()
    assert set(second.epochs) == ALL
    assert all(second.epochs[slot] == epoch + 1 for slot, epoch in first.epochs.items())


async def test_c21_slots_that_others_owned_wait_until_the_servers_count(rig: Rig) -> None:
    await slots.take(rig.context.db, [1, 2], "other", NOW)
    rig.servers.forgot = ALL
    told = await rig.round()
    assert set(told.epochs) == ALL - {1, 2}  # a new system need not wait
    rig.servers.forgot = frozenset()
    assert set((await rig.round()).epochs) == ALL


async def test_c21_a_node_takes_its_own_again_from_servers_that_forgot(rig: Rig) -> None:
    await rig.round()
    rig.servers.free = frozenset()
    await rig.round()
    rig.servers.free = rig.servers.forgot = ALL
    assert set((await rig.round()).epochs.values()) == {2}


async def test_c21_postgresql_decides_if_another_was_quicker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.servers.forgot = ALL
    real = slots.take

    async def overtaken(db: Any, *rest: Any) -> slots.Taken:
        await real(db, [7], "other", NOW)
        return await real(db, *rest)

    monkeypatch.setattr(slots, "take", overtaken)
    assert set((await rig.round()).epochs) == ALL - {7}
    assert rig.servers.released == [7]


async def test_a_refused_claim_makes_it_look_whose_the_slots_are(rig: Rig) -> None:
    first = await rig.round()
    # Another's take-over was so slow that our own had come before it; its lease is over, ours is not.
    await slots.take(rig.context.db, [5], "slow", NOW)
    assert await rig.round() == first
    rig.actor._doubted = True
    told = await rig.round()
    assert told.epochs == {**first.epochs, 5: 3}


async def test_a_take_over_that_a_promotion_lost_is_done_again(rig: Rig) -> None:
    first = await rig.round()
    await query(rig.context.db, "update slots set epoch = 0, owner = null where slot = 5")
    rig.actor._doubted = True
    assert (await rig.round()).epochs == first.epochs
    assert (await slots.states(rig.context.db, [5]))[5].owner == rig.context.node_id


async def test_a_refusal_is_heard_at_once(rig: Rig) -> None:
    rig.clock.at = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.actor.run)
        vitals = rig.context.vitals
        await wait_for(lambda: vitals.owned_slots == slots.SLOTS, 60, "it owns all")
        await slots.take(rig.context.db, [5], "slow", NOW)
        rig.context.boxes.leases.offer(Refused())

        async def again() -> bool:
            return (await slots.states(rig.context.db, [5]))[5].owner == rig.context.node_id

        await wait_for(again, 60, "it owns all again")
        rig.actor.request_stop()


async def test_a_node_lives_on_while_postgresql_holds_up_a_take_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(*_: object) -> dict[int, slots.SlotState]:
        await anyio.sleep_forever()
        raise AssertionError

    beat, beats = rig.context.members.beat, list[None]()

    async def counted(info: bytes) -> frozenset[str]:
        beats.append(None)
        return await beat(info)

    monkeypatch.setattr(slots, "states", no_answer)
    monkeypatch.setattr(rig.context.members, "beat", counted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.actor.run)
        await wait_for(lambda: len(beats) > 3, 60, "it shows that it lives")
        rig.actor.request_stop()


async def test_a_look_that_changed_nothing_tells_nobody(rig: Rig) -> None:
    told = await rig.round()
    await rig.actor._look()
    box = rig.context.boxes.dispatcher
    assert box.depth == 0
    await rig.actor._renew()
    assert await box.receive() == told  # a renewal tells all the same
    box.handled()
    rig.clock.at += 2 * TTL_S
    rig.servers.free = frozenset()
    await rig.actor._look()
    assert await box.receive() == Ownership({}, 0.0)


async def test_a_renewal_tells_those_nothing_to_whom_only_the_slots_matter(rig: Rig) -> None:
    boxes = rig.context.boxes
    others = (boxes.ticker, boxes.prefetcher, boxes.recorder, boxes.reaper)
    while boxes.reaper.offer(Ownership({}, 0.0)):
        pass  # has no room at first
    await rig.round()
    for box in others:
        await box.receive_batch(64)
        box.handled()
    told = await rig.round()
    assert [box.depth for box in others] == [0, 0, 0, 1]
    assert await boxes.reaper.receive() == told
    boxes.reaper.handled()
    rig.servers.free = ALL - {1}
    await rig.round()
    for box in others:
        lost, *_ = await box.receive_batch(64)
        assert isinstance(lost, Ownership)
        assert set(lost.epochs) == ALL - {1}


async def test_a_beat_of_a_look_counts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.actor._beat()
    assert rig.actor._beaten_at > 0
    now, beats = 100.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        assert seconds >= 0
        now += seconds
        if now == 102.0:
            rig.actor._beaten_at = 101.75  # by a look, meanwhile
        if now > 105.0:
            raise TimeoutError

    async def beat() -> None:
        nonlocal now
        rig.actor._beaten_at = now
        beats.append(now)
        if len(beats) == 2:
            now += 1.5  # Redis is slow

    monkeypatch.setattr(rig.actor, "_beat", beat)
    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    with pytest.raises(TimeoutError):
        await rig.actor._keep_beating()
    assert beats == [101.0, 102.75, 104.25]


async def test_what_it_gives_up_it_lets_go_in_the_store_too(rig: Rig, redis_url: str) -> None:
    await rig.round()
    async with another_member(redis_url):
        told = await rig.round()
        assert len(told.epochs) == slots.SLOTS // 2
        assert sorted(rig.servers.released) == sorted(ALL - set(told.epochs))
        states = await slots.states(rig.context.db, rig.servers.released)
        assert {state.owner for state in states.values()} == {None}
    assert set((await rig.round()).epochs) == ALL


async def test_answers_soon_after_trouble_move_no_slot(
    rig: Rig, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> frozenset[str]:
        raise TimeoutError

    async with another_member(redis_url):
        await rig.round()
        first = await rig.round()
        assert len(first.epochs) == slots.SLOTS // 2
        monkeypatch.setattr(rig.context.members, "beat", away)
        await rig.round()
        monkeypatch.undo()
    # Redis forgot the other one, or has not heard of it yet.
    assert set((await rig.round()).epochs) == set(first.epochs)
    rig.clock.at += 1.9
    assert set((await rig.round()).epochs) == set(first.epochs)
    rig.clock.at += 0.2
    assert set((await rig.round()).epochs) == ALL


async def test_a_stop_lets_everything_go_in_the_store_too(rig: Rig) -> None:
    await rig.round()
    assert await owners(rig) == {rig.context.node_id}
    await rig.actor.stopped()
    assert await owners(rig) == {None}
    assert rig.context.vitals.owned_slots == 0


async def test_a_full_dispatcher_learns_of_a_loss_all_the_same(rig: Rig) -> None:
    await rig.round()
    box = rig.context.boxes.dispatcher
    while box.offer(Ownership({}, 0.0)):
        pass
    rig.servers.free = frozenset()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.actor._renew)
        await wait_for(lambda: not rig.actor._held, 60, "it has lost all")
        await box.receive_batch(64)
        box.handled()
        messages = await box.receive_batch(64)
    assert messages[-1] == Ownership({}, 0.0)


async def test_what_was_lost_and_taken_anew_meanwhile_is_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_TELL_S", 60.0)
    first = await rig.round()
    box = rig.context.boxes.dispatcher
    while box.offer(Ownership({}, 0.0)):
        pass
    rig.servers.free = ALL - {1}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.actor._renew)
        await wait_for(lambda: 1 not in rig.actor._held, 60, "one is lost")
        rig.servers.free = ALL
        tasks.start_soon(rig.actor._look)
        await wait_for(lambda: 1 in rig.actor._held, 60, "it is taken anew")
        await box.receive_batch(64)  # so the renewal goes on
        box.handled()
    assert rig.servers.released == []
    assert rig.actor._held[1] == first.epochs[1] + 1


async def test_a_paused_old_owner_cannot_hold_a_slot_for_ever(
    rig: Rig, fresh_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await slots.take(rig.context.db, [1], "old", NOW)
    heard: list[int] = []

    async def listen() -> None:
        box = rig.context.boxes.dispatcher
        for _ in range(2):
            message = await box.receive()
            box.handled()
            assert isinstance(message, Ownership)
            heard.append(len(message.epochs))

    async with (
        session(fresh_database, slots.session_name("old")) as paused,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listen)
        tasks.start_soon(rig.actor._look)

        async def moves_on() -> bool:
            rig.clock.at += 0.01
            return set(rig.actor._held) == ALL

        await wait_for(moves_on, 60, "the slot is ours")
        await wait_for(paused.is_closed, 60, "its session is ended")
    assert heard == [slots.SLOTS - 1, slots.SLOTS]  # the others did not wait for it
    assert "ended 1 sessions of old" in caplog.text


async def test_a_claim_that_hangs_does_not_hold_up_the_hand_over(
    rig: Rig, fresh_database: str
) -> None:
    await rig.round()
    claiming = await asyncpg.connect(fresh_database, timeout=20)
    await claiming.execute("begin")
    await claiming.execute("select from slots where slot = 1 for share")
    await rig.actor.stopped()
    assert sorted(rig.servers.released) == sorted(ALL)

    async def waits() -> bool:
        rows = await query(
            rig.context.db,
            "select from pg_stat_activity"
            " where wait_event_type = 'Lock' and datname = current_database()",
        )
        return len(rows) == 1

    await wait_for(waits, 60, "letting go in PostgreSQL waits, as the hand-over did not")
    await claiming.close()


async def test_a_slot_that_stays_locked_is_given_back_until_later(
    rig: Rig, fresh_database: str
) -> None:
    stranger = await asyncpg.connect(fresh_database, timeout=20)  # nobody's whom it may end
    await stranger.execute("begin")
    await stranger.execute("select from slots where slot = 1 for share")
    async with anyio.create_task_group() as tasks:
        looked = anyio.Event()

        async def look() -> None:
            await rig.actor._look()
            looked.set()

        tasks.start_soon(look)

        async def done() -> bool:
            rig.clock.at += 0.01
            return looked.is_set()

        await wait_for(done, 60, "it has given up")
    assert set(rig.actor._held) == ALL - {1}
    assert rig.servers.released == [1]
    await stranger.close()
    assert set((await rig.round()).epochs) == ALL
