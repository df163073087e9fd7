"""What fails right now, by the work that fails: written by those that do the work, shown by `/readyz`."""

import time
from collections.abc import Mapping
from typing import NamedTuple


class Trouble(NamedTuple):
    """Since when (on the monotonic clock) some work fails, and the latest reason."""

    since: float
    detail: str


class Troubles:
    """A board: each kind of work has a line of its own, which it alone sets and clears."""

    def __init__(self) -> None:
        self._now: dict[str, Trouble] = {}

    @property
    def now(self) -> Mapping[str, Trouble]:
        """Work that fails -> its trouble."""
        return self._now

    def note(self, work: str, detail: str) -> None:
        """It failed; the first failure of a streak says since when."""
        since = self._now[work].since if work in self._now else time.monotonic()
        self._now[work] = Trouble(since, detail)

    def clear(self, work: str) -> None:
        """It works."""
        self._now.pop(work, None)
