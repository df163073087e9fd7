"""Values of options, checked while the command line is read."""

from argparse import ArgumentTypeError


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


def _whole(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:9]) <= high:
        raise ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
    return int(text)
