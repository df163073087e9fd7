"""Waiting between failures: growing, jittered, and logged once per streak instead of each time."""

import logging
import random
from collections.abc import Callable

from duly.actors.troubles import Troubles


class Patience:
    """Back-off of one loop: 0.1 s after the first failure, doubling up to 2 s (or less), ± 20 %.

    So after a failover the work goes on within some two seconds.
    """

    FIRST_S = 0.1
    LONGEST_S = 2.0

    def __init__(
        self,
        what: str,
        log: logging.Logger,
        board: Troubles | None = None,
        longest_s: float = LONGEST_S,
    ) -> None:
        """Name the work, as in "reading tasks" (it completes "… fails" in the log).

        `board`: where it shows as long as it fails. Only for work that is tried again until it
        works: nothing else takes it off. `longest_s`: the longest wait.
        """
        self._what = what
        self._log = log
        self._board = board
        self._longest_s = longest_s
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True between a failure and the next success."""
        return self._failures > 0

    def failed(self, error: BaseException) -> float:
        """Note a failure; return the seconds to wait before the next try."""
        detail = str(error) or type(error).__name__
        if not self._failures:
            self._log.warning("%s fails, trying on: %s", self._what, detail)
        if self._board is not None:
            self._board.note(self._what, detail)
        wait_s = min(self._longest_s, self.FIRST_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return wait_s * random.uniform(0.8, 1.2)

    def worked(self) -> None:
        """Note a success; the next failure begins a new streak."""
        if self._board is not None:
            self._board.clear(self._what)  # also what a crashed life of this actor had noted
        if self._failures:
            self._log.info("%s works again after %d failures", self._what, self._failures)
            self._failures = 0


class QueuePatience:
    """A back-off for each queue whose own keys are at fault, so that the others go on."""

    def __init__(
        self,
        what: str,
        log: logging.Logger,
        monotonic: Callable[[], float],
        board: Troubles | None = None,
    ) -> None:
        """Name the work, as in "publishing tasks"; the queue's name is added."""
        self._what = what
        self._log = log
        self._board = board
        self._monotonic = monotonic
        self._queues: dict[str, tuple[Patience, float]] = {}

    def failing(self, queue: str) -> bool:
        """True between a failure of this queue and its next success."""
        return queue in self._queues

    def pause_s(self, queue: str) -> float:
        """Seconds until the queue should be tried again; 0 = now."""
        if queue not in self._queues:
            return 0.0
        return max(0.0, self._queues[queue][1] - self._monotonic())

    def failed(self, queue: str, error: BaseException) -> None:
        """Note a failure that concerns this queue alone."""
        known = self._queues.get(queue)
        what = f"{self._what} of queue {queue}"
        patience = known[0] if known else Patience(what, self._log, self._board)
        self._queues[queue] = (patience, self._monotonic() + patience.failed(error))

    def worked(self, queue: str) -> None:
        """Note a success."""
        if queue in self._queues:
            self._queues.pop(queue)[0].worked()
