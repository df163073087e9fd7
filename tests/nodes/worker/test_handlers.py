"""Which functions can be handlers, and what they are given."""

from __future__ import annotations

import dataclasses
import functools
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pytest

from duly.nodes.worker.calling import Calls
from duly.nodes.worker.context import Context
from duly.nodes.worker.handlers import Handler, Handlers
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.threads import Threads


class Email(msgspec.Struct):
    to: str
    copies: int = 1


@dataclasses.dataclass
class Order:
    number: int


class Point(TypedDict):
    x: float


def context() -> Context:
    return Context(
        id="a", type="t", queue="q", token=1, attempt=1, due_us=0, deadline=0.0, worker="w"
    )


def run(function: Any, payload: bytes = b"null") -> Outcome:
    return Handler(function, {}).run_blocking(context(), payload)


def result(outcome: Outcome) -> Any:
    assert outcome.kind == "completed", outcome
    assert outcome.body is not None
    return msgspec.json.decode(outcome.body)


def refusal(outcome: Outcome) -> str:
    assert outcome.kind == "failed"
    assert outcome.retry is False
    assert outcome.body is not None
    error = msgspec.json.decode(outcome.body)
    assert error["type"] == "invalid_payload"
    return str(error["message"])


def test_a_payload_is_decoded_to_its_annotation() -> None:
    def struct(ctx: Context, payload: Email) -> str:
        return f"{payload.to} {payload.copies}"

    def dataclass(ctx: Context, payload: Order) -> int:
        return payload.number + 1

    def typed_dict(ctx: Context, payload: Point) -> float:
        return payload["x"]

    assert result(run(struct, b'{"to":"a"}')) == "a 1"
    assert result(run(dataclass, b'{"number":1}')) == 2
    assert result(run(typed_dict, b'{"x":1.5}')) == 1.5


def test_an_annotation_may_name_a_local_class() -> None:
    class Local(msgspec.Struct):
        n: int

    def handler(ctx: Context, payload: Local) -> int:
        return payload.n

    handlers = Handlers()
    handlers.add("t", handler, {"Local": Local})
    found = handlers.get("t")
    assert found is not None
    assert result(found.run_blocking(context(), b'{"n":3}')) == 3


def test_a_payload_that_does_not_fit_names_the_path() -> None:
    def handler(ctx: Context, payload: Email) -> None: ...

    assert "`$.to`" in refusal(run(handler, b'{"to":1}'))
    assert "malformed" in refusal(run(handler, b'{"to":x}'))


def test_a_payload_type_that_raises_anything_is_a_misfit() -> None:
    class Picky(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            raise KeyError("n is odd")

    def handler(ctx: Context, payload: Any) -> None: ...

    handler.__annotations__["payload"] = Picky
    assert "n is odd" in refusal(run(handler, b'{"n":1}'))


@pytest.mark.parametrize("annotation", [Any, dict, dict[str, Any], None])
def test_c42_numbers_are_exact_where_the_type_leaves_them_open(annotation: Any) -> None:
    """C42: integers beyond 64 bits and numbers that no float holds arrive as they were written."""
    seen: list[Any] = []

    def handler(ctx, payload):  # type: ignore[no-untyped-def]  # the point: no annotation
        seen.append(payload)

    if annotation is not None:
        handler.__annotations__["payload"] = annotation
    text = (
        b'{"id": 73786976294838206464, "n": 18446744073709551616, "x": 9007199254740993,'
        b' "f": 1e400, "h": 0.1, "d": 0.1000000000000000055511151231257827}'
    )
    assert run(handler, text).kind == "completed"
    assert seen == [
        {
            "id": 73786976294838206464,
            "n": 18446744073709551616,
            "x": 9007199254740993,
            "f": Decimal("1e400"),
            "h": 0.1,
            "d": Decimal("0.1000000000000000055511151231257827"),
        }
    ]
    assert [type(value) for value in seen[0].values()] == [int, int, int, Decimal, float, Decimal]


def test_a_handler_may_take_the_context_only() -> None:
    def alone(ctx: Context) -> str:
        return ctx.id

    assert result(run(alone, b"not even JSON")) == "a"


def test_methods_partials_and_callable_objects_are_handlers() -> None:
    class Service:
        def handle(self, ctx: Context, payload: Email) -> str:
            return payload.to

        def __call__(self, ctx: Context, payload: Email) -> str:
            return payload.to

        async def later(self, ctx: Context, payload: Email) -> str:
            return payload.to

    def prefixed(prefix: str, ctx: Context, payload: Email) -> str:
        return prefix + payload.to

    assert result(run(Service().handle, b'{"to":"a"}')) == "a"
    assert result(run(Service(), b'{"to":"a"}')) == "a"
    assert result(run(functools.partial(prefixed, ">"), b'{"to":"a"}')) == ">a"
    assert Handler(Service().later, {}).place == "loop"
    assert Handler(Service().handle, {}).place == "thread"


async def test_an_async_handler_is_awaited() -> None:
    async def handler(ctx: Context, payload: Email) -> str:
        return payload.to

    calls = Calls(Threads("test"), 1, [])
    assert result(await Handler(handler, {}).run(context(), b'{"to":"a"}', calls)) == "a"
    assert "`$.to`" in refusal(await Handler(handler, {}).run(context(), b'{"to":1}', calls))


def test_exits_of_a_handler_are_failures() -> None:
    def handler(ctx: Context) -> None:
        raise SystemExit(3)

    outcome = run(handler)
    assert (outcome.kind, outcome.retry) == ("failed", True)


def _nothing() -> None: ...


def _three(ctx: Context, payload: Any, more: Any) -> None: ...


def _keyword(ctx: Context, payload: Any, *, more: Any) -> None: ...


def _unresolved(ctx: Context, payload: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _undecodable(ctx: Context, payload: list[int] | tuple[int, ...]) -> None: ...


async def _stream(ctx: Context) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_nothing, r"must take \(ctx, payload\)"),
        (_three, r"must take \(ctx, payload\)"),
        (_keyword, r"must take \(ctx, payload\)"),
        (_unresolved, "cannot resolve the annotation of 'payload'"),
        (_undecodable, "cannot be decoded"),
        (_stream, "is a generator"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_at_once(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Handler(function, {})


def test_a_type_has_one_handler() -> None:
    handlers = Handlers()
    handlers.add("t", lambda ctx: None, {})
    with pytest.raises(ValueError, match="already"):
        handlers.add("t", lambda ctx: None, {})
    assert handlers.types() == ["t"]
