"""What JSON the store can hold and hand on exactly.

PostgreSQL's JSONB holds numbers of any precision, but writes them out in full: `1e100000` would
come back as 100,001 digits. It cannot hold a NUL character or a lone surrogate. Python on the
worker's side recurses. So: at most 1,000 digits a number when written out, nesting of at most 200,
no NUL, no lone surrogate.
"""

import json
import re

DIGITS_MAX = 1000
"""Digits of a number written out without exponent, before and after the point."""

DEPTH_MAX = 200
"""Arrays and objects inside each other."""

# Payloads without any of these need no closer look: an escape, an exponent, a long number, or as
# many brackets as could nest too deeply. (One pattern for all of them would take four times as long.)
_ESCAPE = rb"\u"
_EXPONENT = re.compile(rb"[0-9][eE]")
_LONG_BYTES = 200
_LONG = re.compile(rb"[0-9.]{%d}" % _LONG_BYTES)
_NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]', re.DOTALL)


class UnfitJsonError(ValueError):
    """This JSON cannot be stored; `path` leads to what is wrong (`a[3].b`, "" = the value)."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def check(raw: bytes) -> None:
    """Raise `UnfitJsonError` unless `raw`, which is well-formed JSON, can be stored as it is."""
    is_long = len(raw) >= _LONG_BYTES
    if is_long and raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and deep_path(raw) is not None:
        raise UnfitJsonError("", f"is nested deeper than {DEPTH_MAX}")
    if _ESCAPE in raw or _EXPONENT.search(raw) or (is_long and _LONG.search(raw)):
        _walk(json.loads(raw, parse_float=_Number, parse_int=_Number), "")


class _Number(str):
    """A number as it was written."""


def deep_path(raw: bytes, depth_max: int = DEPTH_MAX) -> str | None:
    """The field of well-formed JSON in which something is nested deeper than `depth_max`, or None.

    Of lists of things with fields it names index and field; "" if there are no fields.
    """
    steps: list[str | int] = []  # for each open container the member or item that is being read
    text = b""
    for token in _TOKEN.finditer(raw):
        match token[0][:1]:
            case b"[" | b"{":
                if len(steps) == depth_max:
                    return _field(steps)
                steps.append(0 if token[0] == b"[" else "")
            case b"]" | b"}" if steps:
                steps.pop()
            case b"," if steps and isinstance(steps[-1], int):
                steps[-1] += 1
            case b":" if steps:
                steps[-1] = text.decode(errors="replace")
            case _:
                text = token[0][1:-1]
    return None


def _field(steps: list[str | int]) -> str:
    match steps:
        case [str(name), int(at), str(field), *_]:
            return f"{name}[{at}].{field}"
        case [str(name), *_]:
            return name
    return ""


def _walk(value: object, path: str) -> None:
    match value:
        case _Number():
            if _digits(value) > DIGITS_MAX:
                raise UnfitJsonError(path, f"has more than {DIGITS_MAX} digits written out")
        case str():
            _check_text(value, path)
        case dict():
            for key, member in value.items():
                here = f"{path}.{key}" if path else key
                _check_text(key, path)
                _walk(member, here)
        case list():
            for at, member in enumerate(value):
                _walk(member, f"{path}[{at}]")


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise UnfitJsonError(path, "holds a NUL character, which PostgreSQL cannot store")
    if has_surrogate(text):
        raise UnfitJsonError(path, "holds a lone surrogate, which is not a character")


def has_surrogate(text: str) -> bool:
    """Whether some of this is half a character, which has no UTF-8."""
    return _SURROGATE.search(text) is not None


def _digits(number: str) -> int:
    match = _NUMBER.fullmatch(number)
    if match is None:
        return 0
    whole, fraction, exponent = match[1], match[2] or "", match[3] or "0"
    if len(exponent) > 6:
        return DIGITS_MAX + 1
    shift = int(exponent)
    return max(len(whole) + shift, 1) + max(len(fraction) - shift, 0)


def surrogate_path(body: bytes) -> str | None:
    """The path of a lone surrogate in a body that does not decode, None if it is not that."""
    if rb"\ud" not in body.lower():
        return None
    try:
        _walk(json.loads(body, parse_float=_Number, parse_int=_Number), "")
    except UnfitJsonError as error:
        return error.path or "payload"
    except (ValueError, RecursionError):
        return None
    return None
