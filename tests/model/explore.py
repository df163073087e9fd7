"""Visit every state that can be reached; stop at the first step that breaks an invariant.

Breadth first, so that the trace to a violation is a shortest one. Then look for states from which
the task cannot end any more, even if nothing else goes wrong: these are stuck.
"""

from typing import NamedTuple

from fault_steps import fault_steps
from protocol_invariants import SAFETY, Check
from protocol_state import FINAL, Event, Faults, Node, Redis, Rules, State, Store, Worker
from reaper_steps import node_steps
from renumber import renumbered
from worker_steps import worker_steps

STUCK = "nothing_is_stuck"

ADDS = frozenset(("publish", "report", "begin"))
"""Events that make a new id."""


class Scenario(NamedTuple):
    """What may go wrong, whose task it is, and what must hold beside SAFETY."""

    faults: Faults
    rules: Rules = Rules()
    also: tuple[Check, ...] = ()
    """Of each start."""
    but: tuple[Check, ...] = ()
    """Of SAFETY, what is not asked for."""


class Result(NamedTuple):
    """How many states there are; the invariant that broke, if one did, and how it came to that."""

    states: int
    broken: str | None
    trace: list[Event]
    seen: frozenset[str] = frozenset()
    """Names of all events that happened."""

    def __str__(self) -> str:
        lines = [f"{self.states} states; broken: {self.broken}"]
        lines += [
            f"{number:3} {event.name}"
            + (f", {event.who}" if event.who >= 0 else "")
            + (f", token {event.token}" if event.token else "")
            + (f", {event.outcome}" if event.outcome else "")
            for number, event in enumerate(self.trace, 1)
        ]
        return "\n".join(lines)


def first_state(faults: Faults) -> State:
    """A pending task that is due; node 0 owns its slot."""
    return State(Store(), nodes=(Node(epoch=1), Node()), redis=Redis(),
                 workers=(Worker(), Worker()), faults=faults)  # fmt: skip


def explore(scenario: Scenario) -> Result:
    """Visit all states."""
    rules = scenario.rules
    checks = {
        name: [check for check in wanted if check not in scenario.but]
        for name, wanted in SAFETY.items()
    }
    checks["start"] += scenario.also
    seen: set[str] = set()
    start = first_state(scenario.faults)
    number = {start: 0}
    states = [start]
    parents: list[tuple[int, Event]] = [(0, Event("start"))]
    calm_parents: list[list[int]] = [[]]
    for at, state in enumerate(states):  # grows as it is walked
        for steps in (node_steps, worker_steps, fault_steps):
            for event, after in steps(state, rules):
                seen.add(event.name)
                for check in checks.get(event.name, ()):
                    if not check(state, event, after):
                        trace = [*_trace(parents, at), event]
                        return Result(len(states), check.__name__, trace)
                if after.faults.redis_rewind and after.redis != state.redis:
                    after = _replicated(state, event, after)
                if event.name in ADDS:
                    after = renumbered(after)
                known = number.get(after)
                if known is None:
                    known = number[after] = len(states)
                    states.append(after)
                    parents.append((at, event))
                    calm_parents.append([])
                if after.faults == state.faults:
                    calm_parents[known].append(at)
    stuck = _first_stuck(states, calm_parents)
    if stuck is not None:
        return Result(len(states), STUCK, _trace(parents, stuck))
    return Result(len(states), None, [], frozenset(seen))


def _replicated(state: State, event: Event, after: State) -> State:
    """Note what a fail-over of Redis would bring back."""
    if event.name in ("record", "stale report", "node crash"):
        return after  # only what a node has in mind of a report has changed
    return after._replace(replica=state.redis)


def _trace(parents: list[tuple[int, Event]], at: int) -> list[Event]:
    events = []
    while at:
        at, event = parents[at]
        events.append(event)
    return events[::-1]


def _first_stuck(states: list[State], calm_parents: list[list[int]]) -> int | None:
    """The first state from which no end can be reached without a further fault."""
    todo = [at for at, state in enumerate(states) if _is_over(state)]
    can_end = bytearray(len(states))
    for at in todo:
        can_end[at] = True
    while todo:
        for before in calm_parents[todo.pop()]:
            if not can_end[before]:
                can_end[before] = True
                todo.append(before)
    return next((at for at in range(len(states)) if not can_end[at]), None)


def _is_over(state: State) -> bool:
    """The task has ended, and the streams are empty: they do not grow."""
    return state.store.status in FINAL and not state.redis.entries and not state.redis.reports
