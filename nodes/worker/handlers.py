"""The handlers of a worker: which function runs which type, and what it wants to be given."""

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from duly.nodes.exact_json import ExactDecoder
from duly.nodes.worker import outcomes
from duly.nodes.worker.calling import Calls, Place
from duly.nodes.worker.context import Context
from duly.nodes.worker.outcomes import Outcome

_EMPTY: Final = inspect.Parameter.empty
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Handler:
    """One registered function, ready to be called with a context and a payload still in JSON."""

    def __init__(
        self, function: Callable[..., Any], names: Mapping[str, Any], *, process: bool = False
    ) -> None:
        """Look at the function's signature; `names` are the local names its annotations may use.

        Raises TypeError when the signature or the payload's type cannot be served, or if it is to run in a
        process and cannot be found from there.
        """
        self._function = function
        body = _body(function)
        if inspect.isasyncgenfunction(body) or inspect.isgeneratorfunction(body):
            raise TypeError(f"{_name(function)} is a generator; a handler returns its result")
        self.place: Place = "loop" if inspect.iscoroutinefunction(body) else "thread"
        if process:
            _check_sendable(function, self.place)
            self.place = "process"
        self._decoder = _payload_decoder(function, names)

    async def run(self, ctx: Context, payload: bytes, calls: Calls) -> Outcome:
        """Run a handler to its outcome; only cancellation and Ctrl-C come out as such."""
        try:
            arguments = self._arguments(ctx, payload)
        except Exception as error:  # noqa: BLE001 - a __post_init__ may raise anything
            return _undecodable(error, ctx)
        try:
            if self.place == "loop" and not calls.wraps:
                value = await self._function(*arguments)
            else:
                value = await calls.call(self.place, self._function, *arguments)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too is only this task's failure
            return outcomes.raised(error, ctx.codec)
        return outcomes.completed(value, ctx.codec)

    def run_blocking(self, ctx: Context, payload: bytes) -> Outcome:
        """Run a plain handler to its outcome, in the thread of the caller."""
        try:
            arguments = self._arguments(ctx, payload)
        except Exception as error:  # noqa: BLE001 - a __post_init__ may raise anything
            return _undecodable(error, ctx)
        try:
            value = self._function(*arguments)
        except BaseException as error:  # noqa: BLE001 - SystemExit too is only this task's failure
            return outcomes.raised(error, ctx.codec)
        return outcomes.completed(value, ctx.codec)

    def _arguments(self, ctx: Context, payload: bytes) -> tuple[Any, ...]:
        return (ctx,) if self._decoder is None else (ctx, self._decoder.decode(payload))


class Handlers:
    """The handlers of one worker by task type."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def add(
        self,
        task_type: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        *,
        process: bool = False,
    ) -> None:
        """Register `function`; raises ValueError for a second handler of one type."""
        if task_type in self._by_type:
            raise ValueError(f"there is a handler for {task_type!r} already")
        self._by_type[task_type] = Handler(function, names, process=process)

    def get(self, task_type: str) -> Handler | None:
        """Return the handler of `task_type`, or None."""
        return self._by_type.get(task_type)

    def types(self) -> list[str]:
        """Return the types that have a handler, sorted."""
        return sorted(self._by_type)


def _check_sendable(function: Callable[..., Any], place: Place) -> None:
    if place == "loop":
        raise TypeError(f"{_name(function)} is async; what runs in a process is a plain function")
    body = _body(function)
    # By a decorator it is not in its module yet, so that trying to pickle it would say no.
    if not inspect.isroutine(body) or "<" in body.__qualname__:
        raise TypeError(
            f"{_name(function)} cannot be found from another process: define it in a module"
        )


def _undecodable(error: Exception, ctx: Context) -> Outcome:
    text = f"the payload does not fit the handler: {error}"
    return outcomes.failure("invalid_payload", text, retry=False, codec=ctx.codec)


def _payload_decoder(
    function: Callable[..., Any], names: Mapping[str, Any]
) -> ExactDecoder[Any] | None:
    """Return the decoder of the second parameter; None if the handler takes the context only."""
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is _EMPTY and p.kind in _POSITIONAL]
    taken = [p for p in parameters if p.kind in _POSITIONAL]
    keyword_only = [
        p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is _EMPTY
    ]
    if not taken or len(needed) > 2 or keyword_only:
        raise TypeError(f"{_name(function)} must take (ctx, payload) or (ctx)")
    if len(taken) == 1:
        return None
    wanted = _resolve(function, taken[1], names)
    try:
        return ExactDecoder(wanted)
    except TypeError as error:
        raise TypeError(
            f"{_name(function)}: the payload's type cannot be decoded: {error}"
        ) from error


def _resolve(
    function: Callable[..., Any], parameter: inspect.Parameter, names: Mapping[str, Any]
) -> Any:
    """Return the parameter's type, its annotation evaluated if it is still text."""
    if parameter.annotation is _EMPTY:
        return Any
    holder = type("Annotated", (), {"__annotations__": {"payload": parameter.annotation}})
    known = getattr(_body(function), "__globals__", {})
    try:
        hints = typing.get_type_hints(holder, known, dict(names), include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{_name(function)}: cannot resolve the annotation of {parameter.name!r}: {error}"
        ) from error
    return hints["payload"]


def _body(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that is called in the end, below partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _name(function: Callable[..., Any]) -> str:
    body = _body(function)
    return f"{getattr(body, '__module__', '?')}.{getattr(body, '__qualname__', repr(body))}"
