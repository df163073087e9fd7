"""Supervision, after Erlang/OTP: start in order, restart what crashes, stop in reverse.

A crashed child is replaced by a new instance, after a short pause with jitter. By strategy, others
restart with it: none (`one_for_one`), those started after it (`rest_for_one`), or all
(`one_for_all`). More than `max_restarts` within `within_s` seconds, and the supervisor fails
itself: something is wrong that a restart does not mend.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import anyio
import anyio.abc

from duly.actors.runtime.actor import ActorReturnedError, Runnable

__all__ = ["ActorReturnedError", "Child", "ChildState", "Supervisor", "TooManyRestartsError"]

log = logging.getLogger("duly.actors")
Strategy = Literal["one_for_one", "rest_for_one", "one_for_all"]

_PAUSE_S = 0.05
_PAUSE_MAX_S = 2.0


class TooManyRestartsError(Exception):
    """A supervisor's children crashed too often within its period."""


@dataclass
class Child:
    """A place in the tree. `factory` makes a fresh instance for each (re)start.

    `grace_s`: how long an ordered stop waits for it before it is cancelled.
    """

    name: str
    factory: Callable[[], Runnable]
    grace_s: float = 5.0


class ChildState(NamedTuple):
    """What `Supervisor.statistics` tells of one child."""

    name: str
    state: Literal["waiting", "starting", "running", "stopped", "crashed"]
    restarts: int
    last_error: str | None


@dataclass
class _Place:
    child: Child
    restarts: int = 0
    instance: Runnable | None = None
    error: Exception | None = None
    last_error: str | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def alive(self) -> bool:
        return self.instance is not None and not self.done.is_set()


class Supervisor:
    """Looks after `children`; is itself something that a supervisor can look after."""

    def __init__(
        self,
        name: str,
        children: Sequence[Child],
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 5,
        within_s: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._places = [_Place(child) for child in children]
        self._strategy = strategy
        self._max_restarts = max_restarts
        self._within_s = within_s
        self._monotonic = monotonic
        self._crashes: deque[float] = deque()
        self._stop = anyio.Event()
        self._changed = anyio.Event()

    def request_stop(self) -> None:
        """Begin an ordered stop. May be called before the start, twice, and from any task."""
        self._stop.set()
        self._changed.set()

    def statistics(self) -> list[ChildState]:
        """The state of each child."""
        return [_state(place) for place in self._places]

    async def serve(self, ready: anyio.Event) -> None:
        """Run until stopped.

        Raises `TooManyRestartsError`, with the last crash as its cause.
        """
        async with anyio.create_task_group() as tasks:
            try:
                await self._keep_running(tasks, ready)
            finally:
                # On the way out for whatever reason nothing is left running.
                with anyio.CancelScope(shield=True):
                    await self._stop_all()

    async def _keep_running(self, tasks: anyio.abc.TaskGroup, ready: anyio.Event) -> None:
        pending = list(self._places)
        while not self._stop.is_set():
            self._changed = anyio.Event()
            crashed = next((p for p in self._places if p.error is not None), None)
            if crashed is not None:
                pending = await self._after_crash(crashed, pending)
            elif pending:
                await self._start(tasks, pending[0])
                if pending[0].error is None:
                    pending.pop(0)
            else:
                ready.set()
                await self._changed.wait()

    async def _start(self, tasks: anyio.abc.TaskGroup, place: _Place) -> None:
        place.instance = place.child.factory()
        place.ready, place.done = anyio.Event(), anyio.Event()
        place.scope, place.error = anyio.CancelScope(), None
        tasks.start_soon(self._run, place, place.instance, name=place.child.name)
        async with anyio.create_task_group() as waiting:
            for event in (place.ready, place.done, self._stop):
                waiting.start_soon(_wait_then_cancel, event, waiting.cancel_scope)

    async def _run(self, place: _Place, instance: Runnable) -> None:
        try:
            with place.scope:
                await instance.serve(place.ready)
                if not self._stop.is_set():
                    raise ActorReturnedError(f"{place.child.name} returned")
        except Exception as error:
            place.error = error
            place.last_error = f"{type(error).__name__}: {error}"
            log.error("%s/%s crashed", self.name, place.child.name, exc_info=error)
        finally:
            place.done.set()
            self._changed.set()

    async def _after_crash(self, crashed: _Place, pending: list[_Place]) -> list[_Place]:
        """Count, stop the dependents, pause; answers what is to be started, in order."""
        error = crashed.error
        now = self._monotonic()
        self._crashes.append(now)
        while self._crashes[0] < now - self._within_s:
            self._crashes.popleft()
        if len(self._crashes) > self._max_restarts:
            raise TooManyRestartsError(
                f"{self.name}: {len(self._crashes)} crashes within {self._within_s:g} s, "
                f"the last one of {crashed.child.name}"
            ) from error
        crashed.error = None
        crashed.restarts += 1
        affected = self._affected(crashed)
        for place in reversed(affected):
            if place.alive:
                place.scope.cancel()
                await place.done.wait()
        pause_s = min(_PAUSE_MAX_S, _PAUSE_S * 2 ** (len(self._crashes) - 1))
        with anyio.move_on_after(pause_s * random.uniform(0.5, 1.5)):
            await self._stop.wait()
        again = {id(place) for place in (*affected, *pending)}
        return [place for place in self._places if id(place) in again]

    def _affected(self, crashed: _Place) -> list[_Place]:
        at = self._places.index(crashed)
        if self._strategy == "one_for_one":
            return [crashed]
        return self._places[at:] if self._strategy == "rest_for_one" else list(self._places)

    async def _stop_all(self) -> None:
        for place in reversed(self._places):
            if not place.alive or place.instance is None:
                continue
            if self._stop.is_set():
                place.instance.request_stop()
                with anyio.move_on_after(place.child.grace_s):
                    await place.done.wait()
                if not place.done.is_set():
                    log.warning(
                        "%s/%s did not stop within %g s: cancelled",
                        self.name,
                        place.child.name,
                        place.child.grace_s,
                    )
            place.scope.cancel()
            await place.done.wait()


async def _wait_then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _state(place: _Place) -> ChildState:
    if place.instance is None:
        state = "waiting"
    elif place.error is not None:
        state = "crashed"
    elif place.done.is_set():
        state = "stopped"
    else:
        state = "running" if place.ready.is_set() else "starting"
    return ChildState(place.child.name, state, place.restarts, place.last_error)  # type: ignore[arg-type]
