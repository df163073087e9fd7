"""How many tasks of a queue go out a second: short ones need a longer conveyor than long ones."""

import math
from collections.abc import Callable

_MEMORY_S = 0.5  # after it what was counted weighs a third


class Flow:
    """A rate that follows what is counted, and falls while nothing is."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic`: seconds."""
        self._monotonic = monotonic
        self._per_s = 0.0
        self._at = monotonic()

    @property
    def per_s(self) -> float:
        """Tasks a second, of about the last half second."""
        return self._per_s * math.exp((self._at - self._monotonic()) / _MEMORY_S)

    def count(self, tasks: int) -> None:
        """So many have gone out just now."""
        self._per_s = self.per_s + tasks / _MEMORY_S
        self._at = self._monotonic()
