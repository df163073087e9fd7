"""The wait before a retry: formulas, cap, jitter, and values that would overflow a float."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from duly.wheel.backoff import FACTOR_MAX, YEAR_S, Backoff, delay_s

MIDDLE = 0.5
"""The `rand` that adds no jitter."""

backoffs = st.builds(
    Backoff,
    kind=st.sampled_from(["exponential", "linear", "fixed"]),
    delay=st.floats(0, YEAR_S),
    factor=st.floats(1, FACTOR_MAX),
    max_delay=st.floats(0, YEAR_S),
    jitter=st.floats(0, 1),
)
retries = st.integers(1, 10_000)
rands = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("exponential", [5, 10, 20, 40, 80]),
        ("linear", [5, 10, 15, 20, 25]),
        ("fixed", [5, 5, 5, 5, 5]),
    ],
)
def test_kinds(kind: str, expected: list[float]) -> None:
    backoff = msgspec.convert({"kind": kind}, Backoff)
    assert [delay_s(backoff, retry, MIDDLE) for retry in range(1, 6)] == expected


def test_defaults_are_those_of_the_contract() -> None:
    assert msgspec.to_builtins(Backoff()) == {
        "kind": "exponential",
        "delay": 5.0,
        "factor": 2.0,
        "max_delay": 3600.0,
        "jitter": 0.1,
    }
    assert msgspec.json.decode(b"{}", type=Backoff) == Backoff()


def test_the_cap_applies_before_jitter() -> None:
    backoff = Backoff(delay=5, factor=10, max_delay=60, jitter=0.5)
    assert delay_s(backoff, 9, 0) == 30
    assert delay_s(backoff, 9, MIDDLE) == 60
    assert delay_s(backoff, 9, 0.999) == pytest.approx(90, rel=1e-2)


def test_values_that_overflow_are_capped() -> None:
    steep = Backoff(delay=5, factor=5, max_delay=3600, jitter=0.1)
    assert delay_s(steep, 50, MIDDLE) == 3600
    assert delay_s(steep, 10_000, MIDDLE) == 3600
    assert delay_s(Backoff(factor=1e308), 2_000, MIDDLE) == 3600
    assert delay_s(Backoff(kind="linear"), 10**400, MIDDLE) == 3600
    assert delay_s(Backoff(delay=0, factor=1e308), 10_000, MIDDLE) == 0


@pytest.mark.parametrize(
    "document",
    [
        b'{"kind":"random"}',
        b'{"delay":-1}',
        b'{"delay":31536001}',
        b'{"delay":1e400}',
        b'{"delay":"5"}',
        b'{"factor":0.5}',
        b'{"factor":1001}',
        b'{"max_delay":-0.1}',
        b'{"jitter":1.01}',
        b'{"jitter":-0.01}',
        b'{"jitter":null}',
        b'{"colour":1}',
    ],
)
def test_values_out_of_range_are_refused(document: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(document, type=Backoff)


@pytest.mark.parametrize("name", ["delay", "factor", "max_delay", "jitter"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_a_number_and_infinity_are_refused(name: str, value: float) -> None:
    """JSON cannot hold them, a settings file in TOML can."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({name: value}, Backoff)


def test_retries_and_rands_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="retry must be at least 1"):
        delay_s(Backoff(), 0, MIDDLE)
    for rand in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="rand must be in"):
            delay_s(Backoff(), 1, rand)


@given(backoffs, retries, rands)
@example(Backoff(factor=1000.0, delay=float(YEAR_S), max_delay=float(YEAR_S)), 10_000, 0.99)
def test_a_wait_is_never_negative_nor_above_the_cap_and_its_jitter(
    backoff: Backoff, retry: int, rand: float
) -> None:
    wait_s = delay_s(backoff, retry, rand)
    assert 0 <= wait_s <= backoff.max_delay * (1 + backoff.jitter)


@given(backoffs, st.integers(1, 10_000), rands)
def test_waits_never_shrink_from_one_retry_to_the_next(
    backoff: Backoff, retry: int, rand: float
) -> None:
    assert delay_s(backoff, retry, rand) <= delay_s(backoff, retry + 1, rand)


@given(backoffs, retries, rands)
def test_jitter_stays_within_its_share(backoff: Backoff, retry: int, rand: float) -> None:
    plain_s = delay_s(backoff, retry, MIDDLE)
    wait_s = delay_s(backoff, retry, rand)
    assert abs(wait_s - plain_s) <= plain_s * backoff.jitter * (1 + 1e-9) + 1e-300


@given(backoffs)
def test_a_backoff_survives_json(backoff: Backoff) -> None:
    assert msgspec.json.decode(msgspec.json.encode(backoff), type=Backoff) == backoff
