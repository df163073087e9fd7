"""Entries that this worker does not begin: handed back to the nodes, which see to another try.

There is no room for them, no handler for their type, or no way to read them. The task is not to blame for
any of this, so no retry is used up. What is likely to last is logged once and told to the nodes, and such a task
comes again ever more seldom: its pauses are a twelfth of the time that it is late by then. So workers need not
remember it, and whoever can run it at last gets it only little later than it is anyway.
"""

import logging
import random
from collections.abc import Callable
from typing import Any

from duly.nodes.codec import CodecError
from duly.nodes.worker import outcomes
from duly.nodes.worker.handlers import Handlers
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.run import GIVE_BACK_DELAY_S
from duly.storage.conveyor import Entry

log = logging.getLogger("duly.worker")

TOLD_MAX = 20
"""At most so many types that it has no handler for are told, and so many reasons why it cannot read some."""


LONGEST_S = 300.0
"""Longest pause of a task that this worker cannot run; the shortest one is `GIVE_BACK_DELAY_S`."""

_SHARE = 1 / 12


class GivingBack:
    """What one worker has given back, and why."""

    def __init__(
        self,
        handlers: Handlers,
        report: Callable[[Entry, Outcome, float, float], None],
        now_ms: Callable[[], float],
    ) -> None:
        """`report`: as the runner's. `now_ms`: milliseconds since the epoch."""
        self._handlers = handlers
        self._report = report
        self._now_ms = now_ms
        self._unknown_types: set[str] = set()
        self._unreadable: set[str] = set()

    def signs(self) -> dict[str, Any]:
        """What the nodes are told of it: nothing, most of the time."""
        signs: dict[str, Any] = {}
        if self._unknown_types:
            signs["unknown_types"] = sorted(self._unknown_types)[:TOLD_MAX]
        if self._unreadable:
            signs["unreadable"] = sorted(self._unreadable)[:TOLD_MAX]
        return signs

    def crowded(self, entry: Entry) -> None:
        """There is no slot for it, or none any more."""
        read_ms = self._now_ms()
        self._report(entry, outcomes.snoozed(0.0), read_ms, read_ms)

    def unknown(self, entry: Entry) -> None:
        """There is no handler for its type."""
        if entry.type not in self._unknown_types:
            self._unknown_types.add(entry.type)
            log.warning(
                "no handler for task type %r (there are: %s): given back for other workers",
                entry.type,
                ", ".join(self._handlers.types()) or "none",
            )
        self._put_off(entry, "no handler for its type")

    def unread(self, entry: Entry, error: CodecError) -> None:
        """Another worker may have the key, or this one after its next start."""
        reason = f"{entry.type}: {error}"
        if reason not in self._unreadable and len(self._unreadable) < TOLD_MAX:
            self._unreadable.add(reason)
            log.warning("cannot read tasks, given back for other workers: %s", reason)
        self._put_off(entry, f"unreadable: {error}")

    def _put_off(self, entry: Entry, reason: str) -> None:
        read_ms = self._now_ms()
        delay_s = pause_s(read_ms / 1000 - entry.due_us / 1e6)
        self._report(entry, outcomes.given_back(delay_s, reason), read_ms, read_ms)


def pause_s(late_s: float) -> float:
    """Seconds until a task should come again that is so late already, and that this worker cannot run."""
    spread = random.uniform(0.8, 1.2)  # what was due together need not come together for ever
    return max(GIVE_BACK_DELAY_S, min(LONGEST_S, late_s * _SHARE * spread))
