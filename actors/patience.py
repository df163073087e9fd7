"""Waiting between failures: growing, jittered, and logged once per streak instead of each time."""

import logging
import random


class Patience:
    """Back-off of one loop: 0.1 s after the first failure, doubling up to 5 s, ± 20 %."""

    FIRST_S = 0.1
    LONGEST_S = 5.0

    def __init__(self, what: str, log: logging.Logger) -> None:
        """Name the work, as in "reading tasks" (it completes "… fails" in the log)."""
        self._what = what
        self._log = log
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True between a failure and the next success."""
        return self._failures > 0

    def failed(self, error: BaseException) -> float:
        """Note a failure; return the seconds to wait before the next try."""
        if not self._failures:
            self._log.warning(
                "%s fails, trying on: %s", self._what, str(error) or type(error).__name__
            )
        wait_s = min(self.LONGEST_S, self.FIRST_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return wait_s * random.uniform(0.8, 1.2)

    def worked(self) -> None:
        """Note a success; the next failure begins a new streak."""
        if self._failures:
            self._log.info("%s works again after %d failures", self._what, self._failures)
            self._failures = 0
