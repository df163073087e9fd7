"""How long to wait before a task is tried again (design, section 2, field `backoff`)."""

import math
from typing import Annotated, Literal

import msgspec

YEAR_S = 31_536_000
"""Longest delay and cap: 365 days."""

FACTOR_MAX = 1000
"""Largest factor: beyond this the second retry of a one-second delay is already days away."""

Delay = Annotated[float, msgspec.Meta(ge=0, le=YEAR_S)]


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wait before retry n (1-based), capped at `max_delay`, then varied by `jitter`.

    `exponential`: delay * factor ** (n - 1). `linear`: delay * n. `fixed`: delay. The ranges are
    checked when a value is decoded (`msgspec.ValidationError`), not by the constructor.
    """

    kind: Literal["exponential", "linear", "fixed"] = "exponential"
    delay: Delay = 5.0
    """Seconds, 0 to 365 days."""
    factor: Annotated[float, msgspec.Meta(ge=1, le=FACTOR_MAX)] = 2.0
    """1 to 1000; used by `exponential` only."""
    max_delay: Delay = 3600.0
    """Seconds, 0 to 365 days; the cap applies before jitter."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """Share of the capped wait, 0 to 1: 0.1 spreads it evenly over 90 % to 110 %."""


def delay_s(backoff: Backoff, retry: int, rand: float) -> float:
    """Seconds to wait before retry number `retry` (1 is the first).

    `rand` in [0, 1) places the wait within the jitter: 0 the shortest, 0.5 the plain one. The
    result is never negative and never above max_delay * (1 + jitter), however large `retry` and
    the factor are. Raises ValueError for a retry below 1 or a `rand` outside [0, 1).
    """
    if retry < 1:
        raise ValueError(f"retry must be at least 1, got {retry}")
    if not 0 <= rand < 1:
        raise ValueError(f"rand must be in [0, 1), got {rand}")
    plain_s = min(_uncapped_s(backoff, retry), backoff.max_delay)
    return plain_s * (1 + backoff.jitter * (2 * rand - 1))


def _uncapped_s(backoff: Backoff, retry: int) -> float:
    """The wait by kind alone; infinite where a float cannot hold it."""
    if backoff.delay == 0:
        return 0.0  # also keeps 0 * infinity out
    try:
        if backoff.kind == "exponential":
            return backoff.delay * backoff.factor ** (retry - 1)
        return backoff.delay * (retry if backoff.kind == "linear" else 1)
    except OverflowError:  # from ** and from an int too large for a float
        return math.inf
