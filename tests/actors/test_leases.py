"""The lease actor with lease servers that answer as the test says, on a real store."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from duly.actors.context import Context
from duly.actors.leases import LeaseActor
from duly.actors.messages import Ownership
from duly.storage import slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.leases import Held, LeaseServers

ALL = frozenset(range(slots.SLOTS))
TTL_S = 4.0


class FakeServers:
    """Grants what is in `free`; `answering` of three servers answer."""

    majority = 2

    def __init__(self) -> None:
        self.free = ALL
        self.answering = 3
        self.valid_s = TTL_S
        self.released: list[int] = []

    async def take(self, wanted: Sequence[int]) -> Held:
        return self._held(wanted)

    async def renew(self, wanted: Sequence[int]) -> Held:
        return self._held(wanted)

    async def release(self, given: Sequence[int]) -> None:
        self.released += given

    def _held(self, wanted: Sequence[int]) -> Held:
        granted = self.free & set(wanted) if self.answering >= self.majority else frozenset()
        return Held(frozenset(granted), self.valid_s, self.answering)


class FakeClock:
    """A monotonic clock that the test sets; the cluster's clock stays the real one."""

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
        """One round of the actor; what it told the dispatcher."""
        await self.actor._round()
        messages = await self.context.boxes.dispatcher.receive_batch(8)
        self.context.boxes.dispatcher.handled()
        told = messages[-1]
        assert isinstance(told, Ownership)
        return told


@pytest.fixture
def rig(context: Context) -> Rig:
    return Rig(context)


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
    assert rig.context.vitals.redis_error is not None
    rig.clock.at = first.valid_until
    assert (await rig.round()).epochs == {}
    assert rig.context.vitals.owned_slots == 0
    rig.servers.answering = 2
    told = await rig.round()
    assert set(told.epochs.values()) == {2}
    assert rig.context.vitals.redis_error is None


async def test_c18_nothing_is_owned_while_no_server_answers(rig: Rig) -> None:
    rig.servers.answering = 0
    for _ in range(3):
        assert (await rig.round()).epochs == {}
    assert rig.servers.released == []


async def test_leases_go_back_when_the_store_cannot_raise_the_epochs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> dict[int, int]:
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

    async def slow(db: object, *rest: object) -> dict[int, int]:
        rig.clock.at += TTL_S
        return await real(db, *rest)  # type: ignore[arg-type]  # hands on what it was given

    monkeypatch.setattr(slots, "take", slow)
    assert (await rig.round()).epochs == {}
    assert rig.servers.released == sorted(ALL)


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
