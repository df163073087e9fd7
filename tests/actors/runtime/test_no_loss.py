"""Whatever the supervisor does to the receiver, every message is handled, in order.

A memory channel loses the item that is on its way to a receiver which is cancelled at that moment.
"""

import logging
import random

import anyio
import anyio.lowlevel
import pytest
from actor_rig import served
from waiting import wait_for

from duly.actors.runtime import Actor, Child, Mailbox, Strategy, Supervisor

MESSAGES = 10_000


class Bomb(Actor[str]):
    """Crashes every 5 to 50 ms, and so has its siblings cancelled."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(Mailbox("bomb", 1))
        self.dice = dice

    async def run(self) -> None:
        await anyio.sleep(self.dice.uniform(0.005, 0.05))
        raise RuntimeError("boom")


class Receiver(Actor[int]):
    """Takes some time over some messages, before or after what it does, and crashes at times."""

    def __init__(self, mailbox: Mailbox[int], handled: list[int], dice: random.Random) -> None:
        super().__init__(mailbox)
        self.handled = handled
        self.dice = dice

    async def handle(self, message: int) -> None:
        await anyio.sleep(self.dice.choice([0, 0, 0, 0.0001, 0.002]))
        self.handled.append(message)
        await anyio.sleep(self.dice.choice([0, 0, 0, 0.0001]))
        if self.dice.random() < 0.01:
            raise RuntimeError("crashed after its work")


class AtOnce(Receiver):
    """Does its work without waiting for anything."""

    async def handle(self, message: int) -> None:
        self.handled.append(message)
        if self.dice.random() < 0.01:
            raise RuntimeError("crashed after its work")


@pytest.mark.parametrize("strategy", ["rest_for_one", "one_for_all"])
@pytest.mark.parametrize("receiver", [Receiver, AtOnce])
async def test_ten_thousand_messages_while_the_receiver_is_crashed_and_cancelled(
    strategy: Strategy, receiver: type[Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    dice = random.Random(f"{strategy} {receiver.__name__}")
    box = Mailbox[int]("box", 50)
    handled: list[int] = []
    children = [
        Child("bomb", lambda: Bomb(dice)),
        Child("receiver", lambda: receiver(box, handled, dice)),
    ]
    supervisor = Supervisor("node", children, strategy=strategy, max_restarts=10**9)
    async with served(supervisor):
        for number in range(MESSAGES):
            await box.send(number)
            if dice.random() < 0.02:
                await anyio.sleep(0.01)
        await wait_for(lambda: box.depth == 0, 1000, "everything is handled")
    # Cancelled after its work and before it said so, a message comes again: next, and whole.
    assert [n for at, n in enumerate(handled) if at == 0 or handled[at - 1] != n] == list(
        range(MESSAGES)
    )
    if receiver is AtOnce:
        assert len(handled) == MESSAGES
    assert supervisor.statistics()[1].restarts > 100


async def _lend_and_cancel(box: Mailbox[int], handled: list[int], dice: random.Random) -> None:
    """One life of a receiver that is cancelled at an arbitrary moment."""

    async def receive() -> None:
        while True:
            handled.extend(await box.receive_batch(dice.randint(1, 5)))
            box.handled()
            if dice.random() < 0.3:
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        for _ in range(dice.randint(0, 6)):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(3))
async def test_ten_thousand_messages_through_a_storm_of_cancellations(seed: int) -> None:
    dice = random.Random(seed)
    box = Mailbox[int]("box", 7)
    handled: list[int] = []

    async def send() -> None:
        for number in range(MESSAGES):
            await box.send(number)
            if dice.random() < 0.1:
                await anyio.lowlevel.checkpoint()

    lives = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        while len(handled) < MESSAGES:
            await _lend_and_cancel(box, handled, dice)
            lives += 1
    assert handled == list(range(MESSAGES))
    assert lives > 500


async def test_a_storm_of_cancelled_senders_puts_in_what_it_says() -> None:
    dice = random.Random(5)
    box = Mailbox[int]("box", 2)
    sent: list[int] = []
    received: list[int] = []

    async def send(number: int) -> None:
        with anyio.move_on_after(dice.choice([0.0, 0.5, 1.0, 2.0, 100.0])):
            await box.send(number)
            sent.append(number)

    async def receive() -> None:
        while True:
            received.append(await box.receive())
            box.handled()
            await anyio.sleep(dice.choice([0.0, 0.001, 0.5]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        for number in range(3000):
            tasks.start_soon(send, number)
            await anyio.sleep(dice.choice([0.0, 0.001, 0.3]))
        await anyio.sleep(1000)
        tasks.cancel_scope.cancel()
    assert sorted(sent) == sorted(received)
    assert 1000 < len(sent) < 3000
    assert box.offer(1)
    assert box.offer(2)  # no room has leaked
