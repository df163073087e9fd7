"""A supervisor starts in order, stops in reverse, and leaves nothing behind."""

import anyio
import anyio.lowlevel
import pytest
from actor_rig import Rig, outcome, served, states

from duly.actors.runtime import (
    Actor,
    Child,
    Mailbox,
    MailboxClosedError,
    Reply,
    Supervisor,
)


async def test_each_child_starts_after_the_one_before() -> None:
    rig = Rig()
    async with served(Supervisor("node", rig.children)):
        assert rig.take_events() == ["a up", "b up", "c up"]


async def test_children_stop_in_reverse_order_with_last_words() -> None:
    rig = Rig()
    async with served(Supervisor("node", rig.children)):
        rig.take_events()
    assert rig.events == ["c down", "c bye", "b down", "b bye", "a down", "a bye"]


async def test_a_stop_drains_what_was_sent() -> None:
    rig = Rig("ab")
    async with served(Supervisor("node", rig.children)):
        rig.take_events()
        for number in range(3):
            rig.boxes["a"].offer(f"got {number}")
        rig.boxes["b"].offer("got it")
    of_a = ["a got 0", "a got 1", "a got 2", "a down", "a bye"]
    assert [event for event in rig.events if event[0] == "a"] == of_a
    assert [event for event in rig.events if event[0] == "b"] == ["b got it", "b down", "b bye"]
    assert rig.events[-2:] == of_a[-2:]  # it takes messages until b has gone
    assert rig.boxes["a"].closed


class Asker(Actor[str]):
    """Sends what it is sent to the sibling that started before it."""

    def __init__(self, mailbox: Mailbox[str], to: Mailbox[str]) -> None:
        super().__init__(mailbox)
        self.to = to

    async def handle(self, message: str) -> None:
        await self.to.send(message)


async def test_what_is_sent_on_while_draining_arrives() -> None:
    rig = Rig("ab")
    children = [rig.children[0], Child("b", lambda: Asker(rig.boxes["b"], rig.boxes["a"]))]
    async with served(Supervisor("node", children)):
        rig.take_events()
        rig.boxes["b"].offer("passed on")
    assert rig.events == ["a passed on", "a down", "a bye"]


async def test_a_child_that_does_not_stop_is_cancelled_after_its_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig("ab")
    async with served(Supervisor("node", rig.children, stop_grace_s=7)) as tasks:
        for message in ("hang", "x", "y"):
            rig.boxes["b"].offer(message)
        await anyio.sleep(1)
        rig.take_events()
        began = anyio.current_time()
        tasks.start_soon(rig.boxes["a"].send, "in time")
    assert anyio.current_time() - began == pytest.approx(7)
    assert rig.events == ["a in time", "b down", "a down", "a bye"]
    assert caplog.messages == [
        "node/b did not stop within 7 s: cancelled",
        "node/b stopped; messages left unhandled: 3",
    ]


async def test_a_child_may_have_a_grace_of_its_own() -> None:
    rig = Rig("a")
    child = Child("a", rig.factory("a"), grace_s=2)
    async with served(Supervisor("node", [child], stop_grace_s=100)):
        rig.boxes["a"].offer("hang")
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(2)


async def test_last_words_are_within_the_grace() -> None:
    class Talker(Actor[str]):
        async def stopped(self) -> None:
            await anyio.sleep_forever()

    child = Child("a", lambda: Talker(Mailbox("a", 1)))
    async with served(Supervisor("node", [child], stop_grace_s=3)):
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(3)


class Question:
    """A message that carries a reply."""

    def __init__(self) -> None:
        self.reply: Reply[int] = Reply()


async def test_an_orphaned_question_is_answered_with_an_error() -> None:
    class Deaf(Actor[Question]):
        async def run(self) -> None:
            await self.stopping.wait()

    question = Question()
    box = Mailbox[Question]("deaf", 1)
    async with served(Supervisor("node", [Child("deaf", lambda: Deaf(box))])):
        box.offer(question)
    with pytest.raises(MailboxClosedError, match="node/deaf has stopped"):
        await question.reply.wait(1)


async def test_pause_ends_when_a_stop_begins() -> None:
    class Timer(Actor[str]):
        ticks = 0

        async def run(self) -> None:
            while not await self.pause(10):
                self.ticks += 1

    timer = Timer(Mailbox("timer", 1))
    async with served(Supervisor("node", [Child("timer", lambda: timer)])):
        await anyio.sleep(35)
        began = anyio.current_time()
    assert timer.ticks == 3
    assert anyio.current_time() == began


async def test_a_stop_before_the_start_starts_nothing() -> None:
    rig = Rig()
    supervisor = Supervisor("node", rig.children)
    supervisor.request_stop()
    supervisor.request_stop()
    assert await outcome(supervisor) is None
    assert rig.events == []
    assert states(supervisor) == [("a", "new", 0), ("b", "new", 0), ("c", "new", 0)]
    assert rig.boxes["c"].closed  # so that nobody waits for room in it


async def test_a_stop_during_the_start_cuts_it_short() -> None:
    rig = Rig()
    supervisor = Supervisor("node", rig.children)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outcome, supervisor)
        await anyio.sleep(0.015)  # a is up, b is about to be
        supervisor.request_stop()
    assert rig.events == ["a up", "a down", "a bye"]


async def test_a_stop_during_a_restarts_pause_needs_no_waiting() -> None:
    rig = Rig("a")
    async with served(Supervisor("node", rig.children)):
        rig.boxes["a"].offer("crash")
        await anyio.sleep(0.001)
        began = anyio.current_time()
    assert anyio.current_time() == began


async def test_a_stop_may_be_asked_for_by_many_at_once() -> None:
    rig = Rig()
    supervisor = Supervisor("node", rig.children)
    async with served(supervisor) as tasks:
        rig.boxes["b"].offer("got it")

        async def stop() -> None:
            for _ in range(5):
                supervisor.request_stop()
                await anyio.sleep(0.004)

        tasks.start_soon(stop)
        tasks.start_soon(stop)
    assert rig.events.count("b got it") == 1
    assert [event for event in rig.events if "bye" in event] == ["c bye", "b bye", "a bye"]


async def test_it_is_served_once() -> None:
    supervisor = Supervisor("node", [])
    supervisor.request_stop()
    assert await outcome(supervisor) is None
    assert isinstance(await outcome(supervisor), RuntimeError)


async def test_no_children_are_fine() -> None:
    async with served(Supervisor("node", [])):
        await anyio.sleep(1)


async def test_an_actor_that_never_waits_lets_others_run() -> None:
    class Busy(Actor[int]):
        handled = 0

        async def handle(self, message: int) -> None:
            self.handled = message

    box = Mailbox[int]("busy", 1000)
    busy = Busy(box)
    async with served(Supervisor("node", [Child("busy", lambda: busy)])):
        for number in range(1, 1001):
            box.offer(number)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert 1 < busy.handled < 100
    assert busy.handled == 1000
