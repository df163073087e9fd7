"""Time-ordered task ids: UUID version 7 (RFC 9562, section 5.7)."""

import os
import struct
import uuid
from collections.abc import Callable

from asyncpg.pgproto.pgproto import UUID  # made and hashed in C; a subclass of uuid.UUID

_TAIL = 0x3FFF_FFFF_FFFF_FFFF
_LAYOUT = struct.Struct(">QQ")
_last_ms = 0
_counter = 0
_random: list[int] = []  # from the system, many at a time


def uuid7(now_ms: int) -> uuid.UUID:
    """A new id for the instant `now_ms` (milliseconds since the epoch).

    Ids made by one process grow, also within a millisecond (a counter in rand_a, method 1 of
    section 6.2), so that inserts go to the right edge of the primary key. The time of an id never
    goes back even if `now_ms` does.
    """
    global _last_ms, _counter
    if now_ms > _last_ms:
        _last_ms, _counter = now_ms, 0
    else:
        _counter += 1
        if _counter > 0xFFF:
            _last_ms, _counter = _last_ms + 1, 0
    if not _random:
        _random.extend(struct.unpack("<256Q", os.urandom(2048)))
    tail = _random.pop() & _TAIL
    made: uuid.UUID = UUID(_LAYOUT.pack(_last_ms << 16 | 0x7000 | _counter, 0b10 << 62 | tail))
    return made


def uuid7_that(fits: Callable[[uuid.UUID], bool], now_ms: int) -> uuid.UUID:
    """The same, with a tail for which `fits` is true: the first that is found, counting from a random one."""
    made = uuid7(now_ms)
    head, tail = made.int & ~_TAIL, made.int & _TAIL
    while not fits(made):
        tail = (tail + 1) & _TAIL
        made = uuid.UUID(int=head | tail)
    return made


os.register_at_fork(after_in_child=_random.clear)


def from_bytes(raw: bytes) -> uuid.UUID:
    """The id of these 16 bytes."""
    made: uuid.UUID = UUID(raw)
    return made


def read_id(text: str) -> uuid.UUID:
    """The id that this text is, with or without hyphens. Raises ValueError if it is none."""
    read: uuid.UUID = UUID(text)
    return read
