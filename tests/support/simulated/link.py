"""The network between a simulated process and a simulated server, with what can go wrong on it."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from simulated.faults import Fate, Faults, InjectedCrash, Trace
from simulated.loop import PROCESS

_WORLD = contextvars.Context()


class NotSentError(Exception):
    """The server could not be reached: nothing has happened."""


class NoAnswerError(Exception):
    """It was sent: whether it was done is unknown. `ended` is set once it surely is over."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.ended = asyncio.Event()


_TELLING = (
    "sql claim", "sql complete", "sql settle", "sql submit", "sql take_slots", "sql attempts",
    "lua publish", "lua settle", "lua lease_hold", "XREADGROUP",
)  # fmt: skip
"""Calls between which a crash tells most: they get more than their share of crashes."""

_TELLING_CHANCE = 0.08
_OTHER_CHANCE = 0.004


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
        self._stalled: list[Callable[[], None]] | None = None

    def stall(self) -> None:
        """Stop answering; what is sent meanwhile is done at `recover`, its sender may be gone."""
        if self._stalled is None:
            self._stalled = []

    def recover(self) -> None:
        """Up, and answering."""
        self.down = False
        waiting, self._stalled = self._stalled or [], None
        for arrive in waiting:
            arrive()

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

        `give_up_s`: the client's own limit. `wait`: called if `work` answers None, to answer later.
        """
        loop = asyncio.get_running_loop()
        fate = self.faults.fate()
        kind = fate.kind
        if link.dead:
            await loop.create_future()
        if link.crashes + link.kills and link.is_own() and self._strikes(what):
            if link.crashes:
                link.crashes -= 1
                self.trace.note(loop.time(), link.process, f"{what} !crash")
                raise InjectedCrash(what)
            link.kills -= 1
            self.trace.note(loop.time(), link.process, f"{what} !killed")
            loop.call_later(self.faults.uniform(2.5 * fate.request_s), link.kill, context=_WORLD)
        if self.down or kind == "refused":
            await asyncio.sleep(fate.request_s)
            self.trace.note(loop.time(), link.process, f"{what} !refused")
            raise NotSentError(f"{self.name} refuses connections")
        future: asyncio.Future[Any] = loop.create_future()
        error = NoAnswerError("the connection was lost")
        self._send(loop, link, what, work, fate, future, error, wait)
        if give_up_s is not None:
            limit = loop.call_later(give_up_s, _fail, future, error)
            try:
                return await future
            finally:
                limit.cancel()
        return await future

    def _strikes(self, what: str) -> bool:
        telling = what.startswith(_TELLING)
        return self.faults.chance(_TELLING_CHANCE if telling else _OTHER_CHANCE)

    def _send(
        self,
        loop: asyncio.AbstractEventLoop,
        link: Link,
        what: str,
        work: Callable[[], Any],
        fate: Fate,
        future: "asyncio.Future[Any]",
        error: NoAnswerError,
        wait: "Callable[[asyncio.Future[Any]], None] | None",
    ) -> None:
        def later(delay_s: float, call: Callable[..., None], *args: Any) -> None:
            if delay_s:
                loop.call_later(delay_s, call, *args, context=_WORLD)
            else:
                call(*args)

        def arrive() -> None:
            if self._stalled is not None:
                self._stalled.append(arrive)
                return
            error.ended.set()
            if link.dead and self.faults.chance(0.5):
                return
            note = "" if fate.kind == "fine" else f" !{fate.kind}"
            self.trace.note(loop.time(), link.process, f"{what}{note}")
            if self.down or fate.kind == "lost":
                later(fate.answer_s, _fail, future, error)
                return
            try:
                result = work()
            except Exception as refusal:  # noqa: BLE001 - it is the server's answer
                later(fate.answer_s, _fail, future, refusal)
                return
            if fate.kind == "unanswered":
                later(fate.answer_s, _fail, future, error)
            elif result is None and wait is not None:
                wait(future)
            else:
                later(fate.answer_s, _answer, future, result)

        if fate.kind == "late":
            loop.call_later(fate.answer_s, _fail, future, error, context=_WORLD)
            loop.call_later(fate.answer_s + fate.request_s, arrive, context=_WORLD)
        else:
            loop.call_later(fate.request_s, arrive, context=_WORLD)


def _answer(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
