"""JSON in and out with numbers exact: what a handler or a client gets is the value that was sent.

Decoding. A typed value (Struct, dataclass, `int`, …) is decoded to its type. Where the type leaves
it open (`Any`, `dict`, `list`, no annotation):

- an integer of any size is an `int` (one longer than Python converts from text, 4,300 digits by
  default, is an equal `Decimal`);
- a number with a fraction or exponent is a `float` if that float's shortest form is the number
  that was written, as for 0.1 or 2.5e3; otherwise it is an equal `Decimal`, as for 1e400 or
  0.1000000000000000055.

Encoding. `Decimal` is written as a JSON number, digit for digit; dataclasses, Structs, `datetime`,
`UUID`, `Enum`, sets and bytes (base64) as msgspec writes them. What PostgreSQL's JSONB cannot hold
is refused: NaN and infinities, NUL characters, lone surrogates, and exponents beyond its reach.
"""

import json
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

_SURELY_EXACT_CHARS: Final = 16
"""A sign or point and up to 15 digits: every such decimal survives the way through a float."""

_DIGITS_MAX: Final = 16_000
"""JSONB's numeric keeps at least so many digits on either side of the point."""

_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class ExactDecoder(Generic[T]):
    """Decodes JSON to one type; make it once and use it often.

    Raises TypeError when made for a type that msgspec does not support.
    """

    def __init__(self, target: Any = Any) -> None:
        self._target = target
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            target, float_hook=_exact_float
        )

    def decode(self, data: bytes | str) -> T:
        """Return the value; raises msgspec.DecodeError, which names the path of what is wrong."""
        try:
            value: T = self._decoder.decode(data)
        except msgspec.ValidationError:
            if len(data) <= _int_digits_max():
                raise
            # Perhaps only an integer too long for Python's own conversion from text.
            value = msgspec.convert(_decode_slowly(data, _exact_float, _exact_int), self._target)
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deeply") from None
        return value


def encode(value: object) -> bytes:
    """Write `value` as JSON that JSONB can hold.

    Raises TypeError for a type that has no JSON form, ValueError for a value that has none.
    """
    return _encoded(value, _ENCODER)


def encode_sorted(value: object) -> bytes:
    """The same with the names of each object in order, so that equal objects are equal bytes."""
    try:
        return _encoded(value, _SORTED)
    except TypeError:
        # Names that are no text, as numbers, are written as text; only then can they be put in order.
        return _encoded(_ANY.decode(encode(value)), _SORTED)


def _encoded(value: object, encoder: msgspec.json.Encoder) -> bytes:
    if value is None:
        return b"null"
    try:
        data = encoder.encode(value)
        if not isinstance(value, bool | int | str):
            _check(data)
    except RecursionError:
        raise ValueError("the value is nested too deeply or contains itself") from None
    except UnicodeEncodeError:
        raise ValueError("text holds a lone surrogate, which is not valid Unicode") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"not a JSON value that can be stored: {error}") from None
    if _NUL.search(data):
        raise ValueError("text holds a NUL character, which PostgreSQL cannot store")
    if b"null" in data and _holds_non_finite(msgspec.to_builtins(value)):
        raise ValueError("NaN and Infinity are not JSON numbers")
    return data


def _exact_float(text: str) -> float | Decimal:
    number = float(text)
    if len(text) <= _SURELY_EXACT_CHARS and "e" not in text and "E" not in text:
        return number
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"number {text[:40]} is out of range") from None
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else exact


def _exact_int(text: str) -> int | Decimal:
    return int(text) if len(text) <= _int_digits_max() else Decimal(text)


def _int_digits_max() -> int:
    return sys.get_int_max_str_digits() or sys.maxsize


def _decode_slowly(
    data: bytes | str, parse_float: Callable[[str], Any], parse_int: Callable[[str], Any]
) -> Any:
    decoder = json.JSONDecoder(parse_float=parse_float, parse_int=parse_int)
    try:
        return decoder.decode(data if isinstance(data, str) else data.decode())
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def _check(data: bytes) -> None:
    """Look through what was encoded: a `Raw` may hold anything, a `Decimal` any number."""
    try:
        _CHECKER.decode(data)
    except msgspec.ValidationError:
        if len(data) <= _int_digits_max():
            raise
        _decode_slowly(data, _storable, _storable)


def _storable(text: str) -> float:
    exponent = text.lower().partition("e")[2]
    if len(text) > _DIGITS_MAX or (exponent and abs(int(exponent)) > _DIGITS_MAX):
        raise ValueError(f"number {text[:40]} is out of range")
    return 0.0


def _holds_non_finite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_non_finite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_non_finite, value))
    return False


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_SORTED: Final = msgspec.json.Encoder(decimal_format="number", order="sorted")
_ANY: Final[ExactDecoder[Any]] = ExactDecoder()
_CHECKER: Final = msgspec.json.Decoder(float_hook=_storable)
