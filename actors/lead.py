"""How far ahead of its due time a task is claimed: so that the claim has committed when the task is due.

Tasks that are due soon after it are claimed along with it, in one statement. All of them are published at
their due times, not before.
"""

_FIRST_US = 5_000
_AT_LEAST_US = 2_000
_TOGETHER_US = 12_000  # so much longer is the reach than the lead
_WEIGHT = 8


class Lead:
    """Grows with the time that claims take; all of it is at most `longest_s`. With 0 nothing is claimed ahead."""

    def __init__(self, longest_s: float) -> None:
        self._longest_us = round(longest_s * 1_000_000)
        self._took_us = float(_FIRST_US)

    def took(self, seconds: float) -> None:
        """A claim took so long."""
        self._took_us += (seconds * 1_000_000 - self._took_us) / _WEIGHT

    @property
    def us(self) -> int:
        """So long before its due time a task is claimed, in microseconds."""
        return min(self._longest_us, _AT_LEAST_US + round(2 * self._took_us))

    @property
    def reach_us(self) -> int:
        """What is due within this is claimed along with it."""
        return min(self._longest_us, self.us + _TOGETHER_US)
