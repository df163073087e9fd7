"""What a task that follows another one is told of it."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from duly.nodes.exact_json import ExactDecoder


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The task whose outcome this one follows. Numbers in `result` and `error` are exact."""

    id: UUID
    status: str
    """`completed` or `failed`."""
    token: int
    """Of the attempt that ended it."""
    occurrence: datetime
    result: Any = None
    error: Any = None


_DECODER: Final[ExactDecoder[Parent]] = ExactDecoder(Parent)


def parse(text: bytes) -> Parent:
    """Read the field of a stream entry. Raises msgspec.DecodeError."""
    return _DECODER.decode(text)
