"""Values of options, checked while the command line is read."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import NamedTuple


def port(text: str) -> int:
    """A TCP port, 0 to 65535."""
    return _whole(text, 0, 65_535)


def count(text: str) -> int:
    """A whole number from 1 to a million."""
    return _whole(text, 1, 1_000_000)


def duration(text: str | None) -> float | str | None:
    """A number of seconds as such; other text is for the API to understand."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def seconds(text: str) -> float:
    """A number of seconds, 0 to a day."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 86_400:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return value


class Limit(NamedTuple):
    """A limit to set; None ends it."""

    number: float | None


def limit(kind: type[int] | type[float]) -> Callable[[str], Limit]:
    """A number of this kind, or `none`; its range is for the API to check."""

    def parse(text: str) -> Limit:
        try:
            return Limit(None if text == "none" else kind(text))
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number, nor none") from None

    return parse


def _whole(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not low <= int(text) <= high:
        raise ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
    return int(text)
