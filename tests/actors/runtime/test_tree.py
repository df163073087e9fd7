"""A whole tree: nested supervisors, cancellation from outside, statistics, and a stress test."""

import logging
import random
from functools import partial

import anyio
import pytest
from actor_rig import Rig, outcome, served, states

from duly.actors.runtime import (
    Child,
    Strategy,
    Supervisor,
)

STRATEGIES: list[Strategy] = ["one_for_one", "rest_for_one", "one_for_all"]


async def test_cancelling_from_outside_leaves_nothing_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    inner = Rig("xy")
    children = [*rig.children, Child("inner", lambda: Supervisor("inner", inner.children))]
    began = anyio.current_time()
    with anyio.move_on_after(5) as scope:
        await outcome(Supervisor("node", children))
    assert scope.cancelled_caught
    assert anyio.current_time() - began == 5.0
    down = {event for event in rig.events + inner.events if "down" in event}
    assert down == {"a down", "b down", "c down", "x down", "y down"}
    assert not any("bye" in event for event in rig.events + inner.events)
    assert caplog.messages == []


async def test_cancelling_an_ordered_stop_ends_it_at_once() -> None:
    rig = Rig("ab")
    supervisor = Supervisor("node", rig.children, stop_grace_s=1000)
    began = anyio.current_time()
    with anyio.move_on_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, supervisor)
            await anyio.sleep(1)
            rig.boxes["b"].offer("hang")
            supervisor.request_stop()
    assert anyio.current_time() - began == 5.0
    assert {"a down", "b down"} < set(rig.events)


async def test_a_supervisor_may_be_a_child() -> None:
    outer, inner = Rig("ac"), Rig("xy")
    events = outer.events = inner.events
    nested = Child("b", lambda: Supervisor("b", inner.children, stop_grace_s=20))
    children = [outer.children[0], nested, outer.children[1]]
    supervisor = Supervisor("node", children, stop_grace_s=1)
    async with served(supervisor):
        assert events == ["a up", "x up", "y up", "c up"]
        assert [one.name for one in supervisor.statistics()] == ["a", "b", "b/x", "b/y", "c"]
        events.clear()
        inner.boxes["x"].offer("hang")
        began = anyio.current_time()
    # The supervisor is given the time that its own children may take.
    assert anyio.current_time() - began == pytest.approx(20)
    assert events == ["c down", "c bye", "y down", "y bye", "x down", "a down", "a bye"]


async def test_a_supervisor_stopped_in_its_start_stops_what_it_has_started() -> None:
    inner = Rig("xy")
    supervisor = Supervisor("node", [Child("b", lambda: Supervisor("b", inner.children))])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outcome, supervisor)
        await anyio.sleep(0.015)
        supervisor.request_stop()
    assert inner.events == ["x up", "x down", "x bye"]


async def test_statistics_tell_of_each_child() -> None:
    rig = Rig("ab", size=4)
    supervisor = Supervisor("node", rig.children)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outcome, supervisor)
        await anyio.sleep(0.015)
        assert states(supervisor) == [("a", "running", 0), ("b", "starting", 0)]
        await anyio.sleep(1)
        for message in ("hang", "x", "y"):
            rig.boxes["b"].offer(message)
        rig.boxes["a"].offer("crash")
        await anyio.sleep(0.001)
        a, b = supervisor.statistics()
        assert a == ("a", "crashed", 0, 0, 4, "RuntimeError: a told to crash")
        assert b == ("b", "running", 0, 3, 4, None)
        await anyio.sleep(1)
        assert states(supervisor) == [("a", "running", 1), ("b", "running", 0)]
        supervisor.request_stop()
        await anyio.sleep(1)
        assert states(supervisor) == [("a", "running", 1), ("b", "stopping", 0)]
    assert states(supervisor) == [("a", "stopped", 1), ("b", "stopped", 0)]


async def test_starting_and_stopping_at_any_moment_fifty_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in range(50):
        dice = random.Random(seed)
        rig, inner = Rig("abc"), Rig("xy")
        nested = Child("inner", partial(Supervisor, "inner", inner.children))
        strategy = dice.choice(STRATEGIES)
        supervisor = Supervisor(
            "node", [*rig.children, nested], strategy=strategy, max_restarts=1000
        )
        boxes = [*rig.boxes.values(), *inner.boxes.values()]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, supervisor)
            for _ in range(dice.randint(0, 20)):
                dice.choice(boxes).offer(dice.choice(["x", "crash", "hang"]))
                await anyio.sleep(dice.choice([0.0, 0.005, 0.01, 0.1]))
            supervisor.request_stop()
            await anyio.sleep(dice.choice([0.0, 1.0]))
            supervisor.request_stop()

        for events in (rig.events, inner.events):
            # Whoever came up went down, and never twice at the same time.
            for name in "abcxy":
                own = [event for event in events if event in (f"{name} up", f"{name} down")]
                assert own == [f"{name} up", f"{name} down"] * (len(own) // 2)
        assert {one.state for one in supervisor.statistics()} <= {"stopped", "crashed", "new"}
        assert all(box.depth == 0 for box in rig.boxes.values())
