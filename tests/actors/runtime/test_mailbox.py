"""A mailbox: order, bounds, closing, and what becomes of a message that was received."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from duly.actors.runtime import ActorCrashedError, Mailbox, MailboxClosedError, Reply


async def test_messages_come_in_order() -> None:
    box = Mailbox[int]("box", 10)
    for number in range(10):
        await box.send(number)
    assert await box.receive_batch(4) == [0, 1, 2, 3]
    box.handled()
    assert await box.receive() == 4
    box.handled()
    assert await box.receive_batch(100) == [5, 6, 7, 8, 9]
    box.handled()
    assert box.depth == 0


async def test_a_receiver_waits_for_the_first_message_only() -> None:
    box = Mailbox[int]("box", 10)
    async with anyio.create_task_group() as tasks:

        async def receive() -> None:
            assert await box.receive_batch(5) == [1]
            assert anyio.current_time() - began == 3.0

        began = anyio.current_time()
        tasks.start_soon(receive)
        await anyio.sleep(3.0)
        assert box.offer(1)


async def test_a_receiver_goes_on_without_a_message_when_its_time_is_over() -> None:
    box = Mailbox[int]("box", 10)
    began = anyio.current_time()
    assert await box.receive_batch(5, within_s=3.0) == []
    assert anyio.current_time() - began == 3.0
    box.offer(1)
    assert await box.receive_batch(5, within_s=3.0) == [1]
    box.handled()
    assert anyio.current_time() - began == 3.0
    box.close()
    with pytest.raises(MailboxClosedError):
        await box.receive_batch(5, within_s=3.0)


@pytest.mark.parametrize("within_s", [0.0, -1.0])
async def test_a_receiver_without_time_lets_others_run_once(within_s: float) -> None:
    box = Mailbox[int]("box", 10)
    ran: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def other() -> None:
            ran.append(1)

        tasks.start_soon(other)
        assert await box.receive_batch(1, within_s) == []
        assert ran == [1]


async def test_a_nudged_receiver_goes_on_without_a_message() -> None:
    box = Mailbox[int]("box", 10)
    box.nudge()  # nobody waits: it is not kept
    async with anyio.create_task_group() as tasks:

        async def nudge() -> None:
            await anyio.sleep(2.0)
            box.nudge()
            await anyio.sleep(2.0)
            box.nudge()
            assert box.offer(7)  # comes before the receiver runs

        began = anyio.current_time()
        tasks.start_soon(nudge)
        assert await box.receive_batch(1) == []
        assert anyio.current_time() - began == 2.0
        assert await box.receive_batch(1) == [7]
        box.handled()


async def test_one_message_is_waited_for_whatever_the_nudges() -> None:
    box = Mailbox[int]("box", 10)
    async with anyio.create_task_group() as tasks:

        async def nudge() -> None:
            await anyio.sleep(1.0)
            box.nudge()
            await anyio.sleep(1.0)
            assert box.offer(7)

        tasks.start_soon(nudge)
        assert await box.receive() == 7


async def test_what_is_not_handled_comes_again_first_and_in_order() -> None:
    box = Mailbox[int]("box", 10)
    for number in range(6):
        await box.send(number)
    assert await box.receive_batch(3) == [0, 1, 2]
    assert await box.receive() == 0
    box.handled()  # only the one that was received last
    assert box.depth == 5
    assert await box.receive_batch(10) == [1, 2, 3, 4, 5]


async def test_the_batch_is_the_receivers_own() -> None:
    box = Mailbox[int]("box", 10)
    box.offer(1)
    (await box.receive_batch(1)).clear()
    assert await box.receive() == 1


async def test_send_waits_while_full() -> None:
    box = Mailbox[int]("box", 2)
    sent: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            for number in range(5):
                await box.send(number)
                sent.append(number)

        tasks.start_soon(send)
        await anyio.sleep(1)
        assert sent == [0, 1]
        assert await box.receive() == 0
        await anyio.sleep(1)
        assert sent == [0, 1, 2]
        for number in (0, 1, 2, 3, 4):  # number 0 was not handled
            assert await box.receive() == number
            box.handled()
            await anyio.sleep(1)
    assert sent == [0, 1, 2, 3, 4]


async def test_waiting_senders_get_in_in_their_order() -> None:
    box = Mailbox[str]("box", 1)
    await box.send("first")
    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "c"):
            tasks.start_soon(box.send, name)
            await anyio.sleep(1)
        assert await box.receive() == "first"
        box.handled()
        # There is room now, but it belongs to "a", which has waited for it.
        assert not box.offer("late")
        for name in ("a", "b", "c"):
            assert await box.receive() == name
            box.handled()


async def test_a_received_message_makes_room_before_it_is_handled() -> None:
    box = Mailbox[str]("wake-ups", 1)
    assert box.offer("wake")
    assert not box.offer("wake")
    await box.receive()
    assert box.offer("wake again")
    assert box.depth == 2


async def test_a_cancelled_send_has_put_nothing_in() -> None:
    box = Mailbox[str]("box", 1)
    await box.send("first")
    with anyio.move_on_after(1) as scope:
        await box.send("cancelled")
    assert scope.cancelled_caught
    assert await box.receive() == "first"
    box.handled()
    assert box.depth == 0
    assert box.offer("next")


async def test_a_send_cancelled_when_its_turn_came_leaves_the_turn_to_the_next() -> None:
    box = Mailbox[str]("box", 1)
    await box.send("first")
    # asyncio's own cancellation (of a timeout, say) strikes even a task that is about to go on.
    cancelled = asyncio.create_task(box.send("cancelled"))
    await anyio.wait_all_tasks_blocked()
    following = asyncio.create_task(box.send("next"))
    await anyio.wait_all_tasks_blocked()
    await box.receive()
    box.handled()
    cancelled.cancel()
    with anyio.fail_after(1):
        assert await box.receive() == "next"
        await following
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_closed_refuses_messages_and_hands_out_what_is_in() -> None:
    box = Mailbox[int]("box", 10)
    await box.send(1)
    await box.send(2)
    assert not box.closed
    box.close()
    box.close()
    assert box.closed
    assert not box.offer(3)
    with pytest.raises(MailboxClosedError, match="box is closed"):
        await box.send(3)
    assert await box.receive() == 1
    assert await box.receive_batch(5) == [1, 2]
    box.handled()
    with pytest.raises(MailboxClosedError, match="closed and empty"):
        await box.receive()


async def test_closing_wakes_whoever_waits() -> None:
    full, empty = Mailbox[int]("full", 1), Mailbox[int]("empty", 1)
    await full.send(1)
    errors = 0

    async def send() -> None:
        nonlocal errors
        with pytest.raises(MailboxClosedError):
            await full.send(2)
        errors += 1

    async def receive() -> None:
        nonlocal errors
        with pytest.raises(MailboxClosedError):
            await empty.receive()
        errors += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        tasks.start_soon(send)
        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        full.close()
        empty.close()
    assert errors == 3
    assert full.depth == 1


async def test_closing_beats_a_sender_that_was_let_in_and_has_not_run() -> None:
    box = Mailbox[str]("box", 1)
    await box.send("first")

    async def send() -> None:
        with pytest.raises(MailboxClosedError):
            await box.send("second")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        await box.receive()
        box.handled()
        box.close()
        with pytest.raises(MailboxClosedError):
            await box.receive()
    assert box.depth == 0


async def test_two_receivers_are_a_mistake() -> None:
    box = Mailbox[int]("box", 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="two receivers"):
            await box.receive()
        box.offer(1)


async def test_a_size_and_a_limit_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="size"):
        Mailbox[int]("box", 0)
    with pytest.raises(ValueError, match="limit"):
        await Mailbox[int]("box", 1).receive_batch(0)


class Question:
    """A message that carries a reply."""

    def __init__(self) -> None:
        self.reply: Reply[int] = Reply()


async def test_dropping_fails_the_replies() -> None:
    box = Mailbox[Question | str]("box", 3)
    first, second = Question(), Question()
    for message in (first, "no reply in this one", second):
        await box.send(message)
    await box.receive_batch(2)
    assert box.drop_received(ActorCrashedError("boom")) == 2
    with pytest.raises(ActorCrashedError, match="boom"):
        await first.reply.wait(1)
    assert not second.reply.answered
    assert box.drop_all(MailboxClosedError("over")) == 1
    with pytest.raises(MailboxClosedError, match="over"):
        await second.reply.wait(1)
    assert box.depth == 0
