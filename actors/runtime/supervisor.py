"""Supervision, after Erlang/OTP: start in order, restart what crashes, stop in reverse.

A crashed child is replaced by a new instance, after a short pause with jitter. By strategy, others
restart with it: none (`one_for_one`), those after it (`rest_for_one`), or all (`one_for_all`).
More than `max_restarts` within `within_s` seconds, and the supervisor fails itself: something is
wrong that a restart does not mend.

One task takes every decision (`_settle`). Whatever happens, a crash or a stop, cuts it short
wherever it waits, and it begins anew from what it then finds: so there is nothing to keep in step.
"""

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import anyio
import anyio.abc

from duly.actors.runtime.child import Child, ChildState, Place
from duly.actors.runtime.mailbox import MailboxClosedError
from duly.actors.runtime.reply import ActorCrashedError

log = logging.getLogger("duly.actors")
Strategy = Literal["one_for_one", "rest_for_one", "one_for_all"]

_PAUSE_S = 0.05
_PAUSE_MAX_S = 2.0


class TooManyRestartsError(Exception):
    """A supervisor's children crashed too often within its period."""


class ActorReturnedError(Exception):
    """A child's work ended though nobody had asked it to stop: that counts as a crash."""


class Supervisor:
    """Looks after `children`; is itself something that a supervisor can look after. Lives once.

    `stop_grace_s`: seconds for each child's ordered stop, unless it has a `grace_s` of its own.
    `monotonic`: the clock of the restart period, in seconds (default: the event loop's).
    """

    mailbox: None = None

    def __init__(
        self,
        name: str,
        children: Sequence[Child],
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 5,
        within_s: float = 30.0,
        stop_grace_s: float = 5.0,
        monotonic: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.name = name
        self._places = [Place(child) for child in children]
        self._strategy = strategy
        self._max_restarts = max_restarts
        self._within_s = within_s
        self._stop_grace_s = stop_grace_s
        self._monotonic = monotonic
        self._crashes: deque[float] = deque()
        self._stop_requested = False
        self._failure: TooManyRestartsError | None = None
        self._served = False
        self._settling = anyio.CancelScope()

    def request_stop(self) -> None:
        """Begin an ordered stop; `serve` returns when it is done.

        Returns at once. May be called before the start, twice, and by any task of the loop.
        """
        self._stop_requested = True
        self._settling.cancel()

    def statistics(self) -> list[ChildState]:
        """State of each child in order, each supervisor's own children after it."""
        states = []
        for place in self._places:
            states.append(place.state())
            if isinstance(place.instance, Supervisor):
                inner = place.instance.statistics()
                states += [one._replace(name=f"{place.child.name}/{one.name}") for one in inner]
        return states

    async def serve(self, ready: anyio.Event) -> None:
        """Run until stopped; set `ready` when every child has started.

        Cancelled, it leaves nothing running. A stop during the start cuts the start short.
        Raises `TooManyRestartsError`, with the last crash as its cause.
        """
        if self._served:
            raise RuntimeError(f"supervisor {self.name} was served before: make a new one")
        self._served = True
        async with anyio.create_task_group() as tasks:
            while not self._stop_requested and self._failure is None:
                with anyio.CancelScope() as self._settling:
                    await self._settle(tasks, ready)
            for place in reversed(self._places):
                await (place.cancel() if self._failure is not None else self._stop(place))
        if self._failure is not None:
            raise self._failure

    # Starting and restarting

    async def _settle(self, tasks: anyio.abc.TaskGroup, ready: anyio.Event) -> None:
        """Bring up what is down, in order, then wait until a crash or a stop cuts it short."""
        for place in reversed(self._to_take_down()):
            await place.cancel()
        if self._crashes:
            await anyio.sleep(self._pause_s())
        for place in self._places:
            if not place.alive:
                place.begin()
                tasks.start_soon(self._run, place, name=f"{self.name}/{place.child.name}")
            # Once up, children of one_for_one need not wait for each other.
            if self._strategy != "one_for_one" or not ready.is_set():
                await place.ready.wait()
        ready.set()
        await anyio.sleep_forever()

    def _to_take_down(self) -> list[Place]:
        """What restarts together with the first child that is down."""
        if self._strategy == "one_for_one":
            return []
        if self._strategy == "one_for_all":
            return self._places
        first_down = [*(place.alive for place in self._places), False].index(False)
        return self._places[first_down:]

    def _pause_s(self) -> float:
        doublings = min(len(self._crashes), 10) - 1
        return min(_PAUSE_MAX_S, _PAUSE_S * 2.0**doublings) * random.uniform(0.5, 1.0)

    # One child's life

    async def _run(self, place: Place) -> None:
        try:
            with place.scope:
                place.instance = place.child.factory()
                await place.instance.serve(place.ready)
                if not place.stopping:
                    raise ActorReturnedError(f"{self.name}/{place.child.name} returned")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a crash
            self._crashed(place, error)
        except anyio.get_cancelled_exc_class() as error:
            if _is_cancelled():
                raise  # with the whole tree
            # Nobody cancelled this task: something it waited for was, under its feet.
            self._crashed(place, error)
        finally:
            place.end()

    def _crashed(self, place: Place, error: BaseException) -> None:
        name = f"{self.name}/{place.child.name}"
        place.crashed = True
        place.last_error = _describe(error)
        cancelled = place.scope.cancel_called or _is_cancelled()
        dropped = 0
        if place.mailbox is not None and not cancelled:
            dropped = place.mailbox.drop_received(ActorCrashedError(f"{name}: {place.last_error}"))
        ordered = cancelled or self._stop_requested
        log.error(
            "%s crashed%s; messages dropped: %d",
            name,
            " while stopping" if ordered else "",
            dropped,
            # The crashes behind too many restarts have been logged, each with its traceback.
            exc_info=None if isinstance(error, TooManyRestartsError) else error,
        )
        if not ordered:
            self._count(place, error)
            self._settling.cancel()

    def _count(self, place: Place, error: BaseException) -> None:
        now = self._monotonic()
        self._crashes.append(now)
        while self._crashes[0] <= now - self._within_s:
            self._crashes.popleft()
        if len(self._crashes) > self._max_restarts:
            self._failure = TooManyRestartsError(
                f"{self.name}: {len(self._crashes)} crashes within {self._within_s:g} s, "
                f"the last one of {place.child.name}: {place.last_error}"
            )
            self._failure.__cause__ = error

    # Stopping

    async def _stop(self, place: Place) -> None:
        name = f"{self.name}/{place.child.name}"
        place.stopping = True
        nested = isinstance(place.instance, Supervisor)
        # What has not started has nothing to finish; but a supervisor may have started in part.
        if place.alive and place.instance is not None and (place.ready.is_set() or nested):
            own_s = place.child.grace_s
            grace_s = self._stop_grace_s if own_s is None else own_s
            place.instance.request_stop()
            with anyio.move_on_after(math.inf if nested else grace_s):
                await place.done.wait()
            if place.alive:
                log.warning("%s did not stop within %g s: cancelled", name, grace_s)
        await place.cancel()
        if place.mailbox is not None:
            place.mailbox.close()
            orphans = place.mailbox.drop_all(MailboxClosedError(f"{name} has stopped"))
            if orphans:
                log.warning("%s stopped; messages left unhandled: %d", name, orphans)


def _is_cancelled() -> bool:
    return anyio.current_effective_deadline() == -math.inf


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
