"""Exact numbers, and nothing that JSONB cannot hold."""

import json
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.nodes.exact_json import ExactDecoder, encode

_ANY: ExactDecoder[Any] = ExactDecoder()


@given(
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
def test_a_number_keeps_its_value_there_and_back(number: Decimal | float) -> None:
    back = _ANY.decode(encode([number]))[0]
    exact = Decimal(repr(number)) if isinstance(number, float) else number
    assert (Decimal(repr(back)) if isinstance(back, float) else back) == exact


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_a_written_number_is_read_as_that_number(text: str) -> None:
    value = _ANY.decode(text)
    assert (Decimal(repr(value)) if isinstance(value, float) else Decimal(value)) == Decimal(text)


def test_an_integer_too_long_for_python_is_an_equal_decimal() -> None:
    digits = "9" * 5000
    value = _ANY.decode(f'{{"n":{digits},"s":"x"}}')
    assert value == {"n": Decimal(digits), "s": "x"}
    assert encode(value["n"]) == digits.encode()


def test_wrong_input_raises_one_kind_of_error() -> None:
    long_and_wrong = b'{"n":' + b"9" * 5000 + b',"s":"\xff"}'
    for data in (
        b"",
        b"NaN",
        b"01",
        b'"\xff"',
        b"[" * 100_000,
        b"[1e99999999999999999999]",
        long_and_wrong,
    ):
        with pytest.raises(msgspec.DecodeError):
            _ANY.decode(data)


def test_a_type_that_does_not_fit_is_named_also_in_long_input() -> None:
    decoder: ExactDecoder[dict[str, int]] = ExactDecoder(dict[str, int])
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decoder.decode(b'{"n":"x"}' + b" " * 5000)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        [1, {"x": -math.inf}],
        Decimal("NaN"),
        "a\x00",
        {"\x00": 1},
        "\ud800",
        [msgspec.Raw(b'"\\ud800"')],
        msgspec.Raw(b"{bad"),
        Decimal("1e20000"),
        Decimal("1e-20000"),
        pytest.param(10**5000, id="10**5000"),
        pytest.param(Decimal(10**20_000), id="Decimal(10**20_000)"),
    ],
)
def test_what_jsonb_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        encode(value)


def test_a_value_without_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        encode(object())


def test_a_value_within_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        encode(loop)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")))
def test_text_that_looks_like_an_escape_is_fine(text: str) -> None:
    assert json.loads(encode([text, "\\u0000", None])) == [text, "\\u0000", None]
