"""The header `traceparent`, by the rules of W3C Trace Context."""

import pytest

from duly.storage import trace_context

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\t",
        f"01-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-comes-later",
    ],
)
def test_what_can_be_continued(text: str) -> None:
    assert trace_context.checked(text) == GOOD


def test_the_flags_are_kept() -> None:
    assert trace_context.checked(f"00-{TRACE}-{PARENT}-00") == f"00-{TRACE}-{PARENT}-00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        GOOD + "-more",
        GOOD + "\n",
        GOOD[:-1],
        GOOD.upper(),
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}g-01",
        f"01-{TRACE}-{PARENT}-01.later",
        f"00_{TRACE}_{PARENT}_01",
    ],
)
def test_what_begins_no_trace(text: str) -> None:
    assert trace_context.checked(text) is None


def test_opentelemetry_reads_and_writes_the_same() -> None:
    api = trace_context.api()
    span = api.get_current_span(trace_context.context_of(GOOD))
    assert trace_context.traceparent_of(span) == GOOD
    nothing = api.get_current_span(trace_context.context_of(None))
    assert trace_context.traceparent_of(nothing) is None
