"""The network between a simulated process and a simulated server, with what can go wrong on it."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from simulated.faults import Faults, InjectedCrash, Kind, Trace
from simulated.loop import PROCESS

_WORLD = contextvars.Context()


class NotSentError(Exception):
    """The server could not be reached: nothing has happened."""


class NoAnswerError(Exception):
    """It was sent: whether it was done is unknown. `ended` is set once it surely is over."""

    def __init__(self) -> None:
        super().__init__("the connection was lost")
        self.ended = asyncio.Event()


_TELLING = (
    "sql claim", "sql complete", "sql settle", "sql submit", "sql submit_plain", "sql take_slots",
    "sql attempts",
    "lua publish", "lua settle", "lua lease_hold", "XREADGROUP",
)  # fmt: skip
"""Calls between which a crash tells most: they get more than their share of crashes."""

_TELLING_CHANCE = 0.15
_OTHER_CHANCE = 0.006


class Link:
    """One process's connections.

    `crashes`: how often a call may still raise an error that its caller does not expect. `kills`:
    how often one may still be the process's last; `kill` ends it.
    """

    def __init__(
        self, process: str, *, crashes: int = 0, kills: int = 0,
        kill: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.process = process
        self.crashes = crashes
        self.kills = kills
        self.kill = kill
        self.dead = False

    def is_own(self) -> bool:
        """Whether the process itself calls, rather than a client by way of it."""
        return PROCESS.get() == self.process


class Server:
    """Takes calls: each is done in one step, at the moment of its arrival."""

    def __init__(self, name: str, faults: Faults, trace: Trace) -> None:
        self.name = name
        self.faults = faults
        self.trace = trace
        self.down = False
        self.stalled: list[_Call] | None = None
        """While it does not answer: what has arrived since."""

    def stall(self) -> None:
        """Stop answering; what is sent meanwhile is done at `recover`, its sender may be gone."""
        if self.stalled is None:
            self.stalled = []

    def recover(self) -> None:
        """Up, and answering."""
        self.down = False
        waiting, self.stalled = self.stalled or [], None
        for call in waiting:
            call.arrive()

    async def call(
        self,
        link: Link,
        what: str,
        work: Callable[[], Any],
        *,
        give_up_s: float | None = None,
        wait: Callable[["asyncio.Future[Any]"], None] | None = None,
    ) -> Any:
        """The result of `work`. Raises `NotSentError` and `NoAnswerError`.

        It goes on without its caller. `give_up_s`: the client's own limit. `wait`: called if `work`
        answers None, to answer later.
        """
        loop = asyncio.get_running_loop()
        kind, request_s, answer_s = self.faults.fate()
        if link.dead:
            if not link.is_own():
                raise NotSentError(f"{link.process} is gone")
            await loop.create_future()
        if (link.crashes or link.kills) and link.is_own() and self._strikes(what):
            if link.crashes:
                link.crashes -= 1
                self.trace.note(loop.time(), link.process, f"{what} !crash")
                raise InjectedCrash(what)
            link.kills -= 1
            self.trace.note(loop.time(), link.process, f"{what} !killed")
            loop.call_later(self.faults.uniform(2.5 * request_s), link.kill, context=_WORLD)
        if self.down or kind == "refused":
            await asyncio.sleep(request_s)
            self.trace.note(loop.time(), link.process, f"{what} !refused")
            raise NotSentError(f"{self.name} refuses connections")
        call = _Call(loop, self, link, what, work, wait, kind, answer_s, give_up_s)
        if kind == "late":
            call.later(answer_s, call.fail)
            request_s += answer_s
        loop.call_later(request_s, call.arrive, context=_WORLD)
        if kind != "fine":
            call.give_up_in_time()
        return await call.future

    def _strikes(self, what: str) -> bool:
        telling = what.startswith(_TELLING)
        return self.faults.chance(_TELLING_CHANCE if telling else _OTHER_CHANCE)


class _Call:
    """A call under way."""

    __slots__ = (
        "_answer_s", "_end", "_ended", "_error", "_kind", "_link", "_loop", "_server", "_wait",
        "_what", "_work", "future",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: Server,
        link: Link,
        what: str,
        work: Callable[[], Any],
        wait: Callable[["asyncio.Future[Any]"], None] | None,
        kind: Kind,
        answer_s: float,
        give_up_s: float | None,
    ) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._server = server
        self._link = link
        self._what = what
        self._work = work
        self._wait = wait
        self._kind = kind
        self._answer_s = answer_s
        self._end = None if give_up_s is None else loop.time() + give_up_s
        self._ended = False
        self._error: NoAnswerError | None = None

    def arrive(self) -> None:
        """Be done, if the server answers."""
        server, link, kind = self._server, self._link, self._kind
        if server.stalled is not None:
            server.stalled.append(self)
            self.give_up_in_time()
            return
        self._ended = True
        if self._error is not None:
            self._error.ended.set()
        if link.dead and server.faults.chance(0.5):
            self.give_up_in_time()  # who called may be a client, who lives on
            return
        what = self._what if kind == "fine" else f"{self._what} !{kind}"
        server.trace.note(self._loop.time(), link.process, what)
        if server.down or kind == "lost":
            self.later(self._answer_s, self.fail)
            return
        try:
            result = self._work()
        except Exception as refusal:  # noqa: BLE001 - it is the server's answer
            self.later(self._answer_s, self._refuse, refusal)
            return
        if kind == "unanswered":
            self.later(self._answer_s, self.fail)
        elif result is None and self._wait is not None:
            self._wait(self.future)
        else:
            self.later(self._answer_s, self._answer, result)

    def later(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Now, if there is no delay."""
        if delay_s:
            self._loop.call_later(delay_s, call, *args, context=_WORLD)
        else:
            call(*args)

    def give_up_in_time(self) -> None:
        """At the client's limit. Only a call that something has happened to can get there."""
        if self._end is not None:
            self._loop.call_at(self._end, self.fail, context=_WORLD)

    def _answer(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def fail(self) -> None:
        """Give up waiting for the answer."""
        if not self.future.done():
            self._error = NoAnswerError()
            if self._ended:
                self._error.ended.set()
            self.future.set_exception(self._error)
