"""Time-ordered task ids: UUID version 7 (RFC 9562, section 5.7)."""

import os
import uuid

_last_ms = 0
_counter = 0


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
    tail = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
    value = _last_ms << 80 | 0x7 << 76 | _counter << 64 | 0b10 << 62 | tail
    return uuid.UUID(int=value)
