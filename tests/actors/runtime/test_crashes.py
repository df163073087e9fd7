"""What counts as a crash, and what becomes of the message, the asker and the log."""

import asyncio
import logging
from collections.abc import Callable

import anyio
import pytest
from actor_rig import Rig, outcome, served, states

from duly.actors.runtime import (
    Actor,
    ActorCrashedError,
    ActorReturnedError,
    Child,
    Mailbox,
    Reply,
    Strategy,
    Supervisor,
    TooManyRestartsError,
)


class Question:
    """A message that carries a reply."""

    def __init__(self) -> None:
        self.reply: Reply[int] = Reply()


async def test_a_message_that_crashes_its_actor_does_so_once_and_its_asker_hears_of_it() -> None:
    class Fussy(Actor[Question]):
        async def handle(self, message: Question) -> None:
            raise ValueError("not that one")

    box = Mailbox[Question]("fussy", 3)
    supervisor = Supervisor("node", [Child("fussy", lambda: Fussy(box))])
    question = Question()
    async with served(supervisor):
        box.offer(question)
        with pytest.raises(ActorCrashedError, match="node/fussy: ValueError: not that one"):
            await question.reply.wait(1)
        await anyio.sleep(10)
        assert states(supervisor) == [("fussy", "running", 1)]
        assert box.depth == 0


async def test_a_crash_in_the_start_does_not_drop_what_the_one_before_had_not_finished() -> None:
    rig = Rig("ab")
    lives = iter([False, True, False])
    handled: list[str] = []

    class Unlucky(Actor[str]):
        async def started(self) -> None:
            if next(lives):
                raise ConnectionError("no luck")

        async def handle(self, message: str) -> None:
            await anyio.sleep(10)
            handled.append(message)

    box = Mailbox[str]("unlucky", 3)
    children = [rig.children[0], Child("unlucky", lambda: Unlucky(box))]
    async with served(Supervisor("node", children, strategy="rest_for_one")):
        box.offer("precious")
        await anyio.sleep(1)
        rig.boxes["a"].offer("crash")
        await anyio.sleep(20)
        assert handled == ["precious"]


async def test_a_cleanup_that_fails_does_not_drop_what_was_cancelled() -> None:
    rig = Rig("ab")
    handled: list[str] = []

    class Untidy(Actor[str]):
        async def handle(self, message: str) -> None:
            try:
                await anyio.sleep(10)
            except BaseException as error:
                raise OSError("cannot close") from error
            handled.append(message)

    box = Mailbox[str]("untidy", 3)
    children = [rig.children[0], Child("untidy", lambda: Untidy(box))]
    supervisor = Supervisor("node", children, strategy="rest_for_one", max_restarts=1)
    async with served(supervisor):
        box.offer("precious")
        await anyio.sleep(1)
        rig.boxes["a"].offer("crash")
        await anyio.sleep(20)
        assert handled == ["precious"]
        assert supervisor.statistics()[1].last_error == "OSError: cannot close"


async def test_a_crash_is_logged_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig("a")
    async with served(Supervisor("node", rig.children)):
        rig.boxes["a"].offer("crash")
        await anyio.sleep(1)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("duly.actors", logging.ERROR)
    assert record.getMessage() == "node/a crashed; messages dropped: 1"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "a told to crash"


async def test_returning_unasked_is_a_crash_without_last_words() -> None:
    class Lazy(Actor[str]):
        async def run(self) -> None:
            await anyio.sleep(1)

        async def stopped(self) -> None:
            raise AssertionError("nobody stopped it")

    child = Child("lazy", lambda: Lazy(Mailbox("lazy", 1)))
    error = await outcome(Supervisor("node", [child], max_restarts=3))
    assert isinstance(error, TooManyRestartsError)
    assert isinstance(error.__cause__, ActorReturnedError)
    assert str(error.__cause__) == "node/lazy returned"


async def test_a_cancellation_from_nowhere_is_a_crash() -> None:
    class Misled(Actor[str]):
        async def run(self) -> None:
            answer = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(1, answer.cancel)
            await answer

    rig = Rig("a")
    child = Child("misled", lambda: Misled(Mailbox("misled", 1)))
    error = await outcome(Supervisor("node", [*rig.children, child], max_restarts=3))
    assert isinstance(error, TooManyRestartsError)
    assert isinstance(error.__cause__, asyncio.CancelledError)


async def test_a_crash_inside_a_task_group_is_named() -> None:
    class Busy(Actor[str]):
        async def run(self) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                raise LookupError("deep inside")

    supervisor = Supervisor("node", [Child("busy", lambda: Busy(Mailbox("busy", 1)))])
    await outcome(supervisor)
    assert supervisor.statistics()[0].last_error == "LookupError: deep inside"


def _failing_factory() -> Actor[str]:
    raise LookupError("cannot be made")


class _Stillborn(Actor[str]):
    async def started(self) -> None:
        raise LookupError("cannot start")


@pytest.mark.parametrize("factory", [_failing_factory, lambda: _Stillborn(Mailbox("x", 1))])
@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
async def test_a_child_that_cannot_start_holds_back_those_after_it(
    factory: Callable[[], Actor[str]], strategy: Strategy
) -> None:
    rig = Rig("ac")
    children = [rig.children[0], Child("b", factory), rig.children[1]]
    error = await outcome(Supervisor("node", children, strategy=strategy, max_restarts=2))
    assert isinstance(error, TooManyRestartsError)
    assert isinstance(error.__cause__, LookupError)
    lives = 3 if strategy == "one_for_all" else 1
    assert rig.events == ["a up", "a down"] * lives


async def test_a_crash_while_stopping_is_logged_and_the_stop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig("ab")
    async with served(Supervisor("node", rig.children, max_restarts=0)):
        rig.take_events()
        for message in ("crash", "x"):
            rig.boxes["b"].offer(message)
    assert rig.events == ["b down", "a down", "a bye"]
    assert caplog.messages == [
        "node/b crashed while stopping; messages dropped: 1",
        "node/b stopped; messages left unhandled: 1",
    ]
