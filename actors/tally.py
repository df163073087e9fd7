"""What happens to many queues at once, counted for one line of the log instead of a line for each."""

import logging
from collections import Counter

_NAMED = 5


class Tally:
    """Counts by queue since it was last told."""

    def __init__(self, log: logging.Logger, text: str) -> None:
        """`text`: the line, with a place for the total (%d) and one for the queues (%s)."""
        self._log = log
        self._text = text
        self._counts: Counter[str] = Counter()
        self._detail = ""

    def add(self, queue: str, count: int = 1, detail: str = "") -> None:
        """Count what happened to this queue; nothing if `count` is 0. Of details the first is told."""
        if count:
            self._counts[queue] += count
            self._detail = self._detail or detail

    def tell(self) -> None:
        """Log what was counted, if anything, and begin anew."""
        if not self._counts:
            return
        counts, self._counts = self._counts, Counter()
        detail, self._detail = self._detail, ""
        named = ", ".join(sorted(counts)[:_NAMED])
        more = len(counts) - _NAMED
        where = f"queues {named} and {more} more" if more > 0 else f"queue(s) {named}"
        if detail:
            where += f"; the first: {detail}"
        self._log.warning(self._text, counts.total(), where)
