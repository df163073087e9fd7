"""What a soak calls flat."""

from benchmarks.soak import judge


def verdict(values: list[float], name: str = "x, bytes") -> str:
    found = judge([{name: value} for value in values])
    return str(found[name]["verdict"])


def test_filling_up_at_first_and_waves_are_flat() -> None:
    assert verdict([0, 2e8, 5e8] + [9e8, 10e8] * 8) == "flat"


def test_steady_growth_is_not() -> None:
    assert verdict([1e8 * n for n in range(20)]) == "grows"


def test_what_begins_in_the_second_half_grows() -> None:
    found = judge([{"a, count": 1.0}] * 10 + [{"a, count": 1.0, "b, count": 500.0}] * 10)
    assert found["b, count"]["verdict"] == "grows"
    assert found["a, count"]["verdict"] == "flat"


def test_what_is_small_is_not_worth_a_word() -> None:
    assert verdict([8192.0 * n for n in range(20)]) == "flat"
    assert verdict([60.0 + n / 4 for n in range(20)], "node, MB") == "flat"


def test_a_soak_that_was_cut_short_has_a_verdict() -> None:
    assert verdict([5.0]) == "flat"
    assert judge([]) == {}
