"""Who restarts with whom, when, and how often."""

from itertools import pairwise

import anyio
import pytest
from actor_rig import Rig, outcome, served, states

from duly.actors.runtime import (
    Actor,
    Child,
    Mailbox,
    Strategy,
    Supervisor,
    TooManyRestartsError,
)


@pytest.mark.parametrize(
    ("strategy", "events"),
    [
        ("one_for_one", ["b down", "b up"]),
        ("rest_for_one", ["b down", "c down", "b up", "c up"]),
        ("one_for_all", ["b down", "c down", "a down", "a up", "b up", "c up"]),
    ],
)
async def test_who_restarts_with_a_child_that_crashed(
    strategy: Strategy, events: list[str]
) -> None:
    rig = Rig()
    async with served(Supervisor("node", rig.children, strategy=strategy)):
        rig.take_events()
        rig.boxes["b"].offer("crash")
        await anyio.sleep(1)
        assert rig.take_events() == events


async def test_a_restarted_child_is_a_new_instance_with_the_old_mailbox() -> None:
    rig = Rig("a")
    made: list[Actor[str]] = []

    def factory() -> Actor[str]:
        made.append(rig.factory("a")())
        return made[-1]

    async with served(Supervisor("node", [Child("a", factory)])):
        rig.take_events()
        for message in ("one", "crash", "two"):
            rig.boxes["a"].offer(message)
        await anyio.sleep(1)
        assert rig.take_events() == ["a one", "a down", "a up", "a two"]
    first, second = made
    assert first is not second
    assert first.mailbox is second.mailbox


async def test_a_sibling_cancelled_by_a_restart_loses_no_message() -> None:
    rig = Rig("ab")
    async with served(Supervisor("node", rig.children, strategy="rest_for_one")):
        rig.take_events()
        for number in range(3):
            rig.boxes["b"].offer(f"got {number}")
        await anyio.sleep(0.015)  # in the midst of the second
        rig.boxes["a"].offer("crash")
        await anyio.sleep(1)
        assert rig.events == [
            *("b got 0", "a down", "b down", "a up", "b up"),
            *("b got 1", "b got 2"),
        ]


async def test_too_many_restarts_end_the_supervisor_with_the_cause() -> None:
    rig = Rig("abc", size=20)
    supervisor = Supervisor("node", rig.children, max_restarts=5, within_s=30)
    for _ in range(7):
        rig.boxes["b"].offer("crash")
    error = await outcome(supervisor)
    assert isinstance(error, TooManyRestartsError)
    assert str(error) == (
        "node: 6 crashes within 30 s, the last one of b: RuntimeError: b told to crash"
    )
    assert isinstance(error.__cause__, RuntimeError)
    assert states(supervisor) == [("a", "stopped", 0), ("b", "crashed", 5), ("c", "stopped", 0)]
    assert rig.boxes["b"].depth == 1
    assert rig.events[-2:] == ["c down", "a down"]  # cancelled, in reverse order


async def test_restarts_far_enough_apart_are_not_too_many() -> None:
    rig = Rig("a")
    now = 0.0
    supervisor = Supervisor(
        "node", rig.children, max_restarts=2, within_s=30, monotonic=lambda: now
    )
    async with served(supervisor):
        for _ in range(10):
            rig.boxes["a"].offer("crash")
            await anyio.sleep(5)
            now += 15
        assert states(supervisor) == [("a", "running", 10)]


async def test_crashes_of_all_children_count_together() -> None:
    rig = Rig("abc")
    for box in rig.boxes.values():
        box.offer("crash")
    error = await outcome(Supervisor("node", rig.children, max_restarts=2))
    assert isinstance(error, TooManyRestartsError)


async def test_no_restart_may_be_allowed() -> None:
    rig = Rig("a")
    rig.boxes["a"].offer("crash")
    error = await outcome(Supervisor("node", rig.children, max_restarts=0))
    assert isinstance(error, TooManyRestartsError)
    assert rig.events == ["a up", "a down"]


async def test_the_pause_before_a_restart_grows() -> None:
    starts: list[float] = []

    class Weak(Actor[str]):
        async def run(self) -> None:
            starts.append(anyio.current_time())
            raise ConnectionError("weak")

    child = Child("weak", lambda: Weak(Mailbox("weak", 1)))
    await outcome(Supervisor("node", [child], max_restarts=8))
    pauses = [after - before for before, after in pairwise(starts)]
    for number, pause in enumerate(pauses):
        most_s = min(2.0, 0.05 * 2**number)
        assert most_s / 2 <= pause <= most_s + 1e-9
    assert len(pauses) == 8


async def test_a_slow_start_holds_back_no_other_restart_in_one_for_one() -> None:
    rig = Rig("ac")
    lives = 0

    class Slow(Actor[str]):
        async def started(self) -> None:
            nonlocal lives
            lives += 1
            await anyio.sleep(1000 if lives == 2 else 0)

        async def handle(self, message: str) -> None:
            raise RuntimeError(message)

    box = Mailbox[str]("slow", 1)
    children = [rig.children[0], Child("slow", lambda: Slow(box)), rig.children[1]]
    supervisor = Supervisor("node", children)
    async with served(supervisor):
        box.offer("crash")
        await anyio.sleep(1)
        rig.boxes["c"].offer("crash")
        rig.boxes["a"].offer("crash")
        await anyio.sleep(1)
        assert states(supervisor) == [
            ("a", "running", 1),
            ("slow", "starting", 1),
            ("c", "running", 1),
        ]


async def test_an_earlier_siblings_crash_cuts_short_a_restart_under_way() -> None:
    rig = Rig()
    async with served(Supervisor("node", rig.children, strategy="rest_for_one")):
        rig.take_events()
        rig.boxes["c"].offer("crash")
        await anyio.sleep(0.001)  # c is down and waits for its restart
        rig.boxes["a"].offer("crash")
        await anyio.sleep(1)
        assert rig.events == ["c down", "a down", "b down", "a up", "b up", "c up"]


async def test_a_nested_supervisor_that_gives_up_is_restarted_as_a_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer, inner = Rig("a"), Rig("xy", size=20)
    nested = Child("b", lambda: Supervisor("b", inner.children, max_restarts=1))
    supervisor = Supervisor("node", [*outer.children, nested])
    async with served(supervisor):
        for message in ("crash", "crash", "still here"):
            inner.boxes["x"].offer(message)
        await anyio.sleep(10)
        assert inner.events[:2] == ["x up", "y up"]
        assert inner.events[-3:] == ["x up", "x still here", "y up"]
        assert outer.events == ["a up"]
        assert states(supervisor) == [
            *(("a", "running", 0), ("b", "running", 1)),
            *(("b/x", "running", 0), ("b/y", "running", 0)),
        ]
    traceback_of = {record.getMessage(): bool(record.exc_info) for record in caplog.records}
    assert traceback_of == {
        "b/x crashed; messages dropped: 1": True,
        "node/b crashed; messages dropped: 0": False,
    }


async def test_giving_up_goes_all_the_way_up() -> None:
    class Weak(Actor[str]):
        async def run(self) -> None:
            raise ConnectionError("weak")

    weak = Child("weak", lambda: Weak(Mailbox("weak", 1)))
    inner = Child("inner", lambda: Supervisor("inner", [weak], max_restarts=1))
    error = await outcome(Supervisor("node", [inner], max_restarts=1))
    assert isinstance(error, TooManyRestartsError)
    assert isinstance(error.__cause__, TooManyRestartsError)
    assert isinstance(error.__cause__.__cause__, ConnectionError)
