"""What happens to tasks, for whoever looks on (`GET /v1/events`). While nobody does, nothing is kept or sent.

That somebody does, a node tells the others with its beat; so a node knows it a second or so later. What
actors tell here is kept for a moment, and sent by the broadcaster.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, get_args
from uuid import UUID

import anyio

from duly.actors import node_info
from duly.storage.claims import Ended

Change = Literal[
    "submitted", "claimed", "completed", "failed", "retrying", "cancelled", "skipped", "paused",
    "resumed", "changed", "stale",
]  # fmt: skip
"""What can happen to a task. `retrying`: an attempt failed, and there will be another."""

CHANGES: Final[tuple[Change, ...]] = get_args(Change)

KEPT_MAX: Final = 500
"""Changes kept for one message; more are counted, and left out."""


class Told(NamedTuple):
    """A change of a task, with the token of the attempt that it is about, if it is about one."""

    change: Change
    id: UUID
    token: int | None = None


class Feed:
    """Of one node. Telling costs next to nothing while nobody looks on."""

    def __init__(self) -> None:
        self.listeners = 0
        """Clients of this node that look on."""
        self._elsewhere = False
        self._told: list[Told] = []
        self._left_out = 0
        self._some = anyio.Event()

    @property
    def wanted(self) -> bool:
        """Whether anybody looks on, at this node or another."""
        return self.listeners > 0 or self._elsewhere

    def note(self, words: Iterable[bytes]) -> None:
        """Look at what every live node says of itself, whether it has clients that look on."""
        infos = map(node_info.read, words)
        self._elsewhere = any(info is not None and info.listeners for info in infos)

    def tell(self, change: Change, ids: Iterable[UUID]) -> None:
        """This happened to these tasks."""
        if self.wanted:
            self._keep(Told(change, one) for one in ids)

    def tell_of(self, change: Change, attempts: Iterable[tuple[UUID, int]]) -> None:
        """This happened to these attempts: (id, token)."""
        if self.wanted:
            self._keep(Told(change, *one) for one in attempts)

    def tell_ends(self, ended: Iterable[Ended], recorded: set[tuple[UUID, int]]) -> None:
        """These attempts ended; those that are not `recorded` are stale."""
        if self.wanted:
            self._keep(Told(_end(one, recorded), one.id, one.token) for one in ended)

    def _keep(self, told: Iterable[Told]) -> None:
        for one in told:
            if len(self._told) < KEPT_MAX:
                self._told.append(one)
            else:
                self._left_out += 1
        if self._told or self._left_out:
            self._some.set()

    async def some(self) -> None:
        """Wait until there is something to send."""
        await self._some.wait()

    def take(self) -> tuple[list[Told], int]:
        """What was told since the last time, and how many more there were."""
        told, left_out = self._told, self._left_out
        self._told, self._left_out, self._some = [], 0, anyio.Event()
        return told, left_out


def _end(ended: Ended, recorded: set[tuple[UUID, int]]) -> Change:
    if (ended.id, ended.token) not in recorded:
        return "stale"
    if ended.outcome == "completed":
        return "completed"
    return "retrying" if ended.outcome == "snoozed" else "failed"
