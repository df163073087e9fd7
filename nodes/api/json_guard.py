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
# many brackets as could nest too deeply.
_SUSPECT = re.compile(rb"\\u|\d[eE]|[\d.]{200}")
_NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_SURROGATE = re.compile("[\ud800-\udfff]")


class UnfitJsonError(ValueError):
    """This JSON cannot be stored; `path` leads to what is wrong (`a[3].b`, "" = the value)."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def check(raw: bytes) -> None:
    """Raise `UnfitJsonError` unless `raw`, which is well-formed JSON, can be stored as it is."""
    if _depth_bound(raw) > DEPTH_MAX and _depth(raw) > DEPTH_MAX:
        raise UnfitJsonError("", f"is nested deeper than {DEPTH_MAX}")
    if _SUSPECT.search(raw):
        _walk(json.loads(raw, parse_float=_Number, parse_int=_Number), "")


class _Number(str):
    """A number as it was written."""


def _depth_bound(raw: bytes) -> int:
    return raw.count(b"[") + raw.count(b"{")


def _depth(raw: bytes) -> int:
    depth = deepest = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', raw):
        match token[0][:1]:
            case b"[" | b"{":
                depth += 1
                deepest = max(deepest, depth)
            case b"]" | b"}":
                depth -= 1
    return deepest


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
    if _SURROGATE.search(text):
        raise UnfitJsonError(path, "holds a lone surrogate, which is not a character")


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
