"""What a scheduler has to do to be measured beside Duly."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from benchmarks.rig import Start


class Servers(NamedTuple):
    """An empty database and an empty Redis for one turn of one peer."""

    database_url: str
    redis_url: str


class Submitted(NamedTuple):
    """What became of a submission."""

    seconds: float
    """From the first call until the last was answered."""
    dues: Sequence[float]
    """When the peer has each task due, in the order of submission: seconds since 1970."""


@dataclass(frozen=True)
class Traits:
    """What is known of a peer beforehand."""

    name: str
    records: str
    """What is durably recorded of an outcome."""
    submits_per_s: int
    """Submissions a second that it manages on a slow machine: how far ahead a scenario begins."""
    drains: int = 20_000
    """Tasks of the drain; few enough to be done in a minute."""
    keeps_outcomes: bool = True
    """Whether it records when each task has ended."""


class Running(Protocol):
    """A peer that has been started."""

    async def set_workers(self, count: int) -> None:
        """Have `count` worker processes, each ready for work."""

    async def submit(
        self, dues: Sequence[float], single: bool = False, noted: bool = True
    ) -> Submitted:
        """Submit a task for each time, in large batches, or one by one from 16 callers.

        Their handlers note that they have started, or do nothing.
        """

    async def starts(self, submitted: Submitted, timeout_s: float) -> list[Start]:
        """Wait until each noted task has started; answers its first start. Raises TimeoutError."""

    async def recorded(self, count: int, timeout_s: float) -> list[float]:
        """Wait until the outcomes of so many tasks are recorded; answers when they were, in order.

        Raises TimeoutError. Of a peer that keeps outcomes.
        """


class Peer(Protocol):
    """A scheduler that can be started."""

    @property
    def traits(self) -> Traits:
        """What is known of it beforehand."""

    def install(self) -> str:
        """Make it ready to be started; answers its version. Raises CannotInstallError."""

    def running(self, servers: Servers) -> AbstractAsyncContextManager[Running]:
        """Started on these servers until the context ends; everything it started ends with it."""
