"""What goes wrong in tests only."""

# ruff: noqa: N818 - these read as statements, like those of the client

from collections.abc import Sequence
from typing import NamedTuple


class Open(NamedTuple):
    """A task that is not over, or comes again."""

    id: str
    type: str
    queue: str
    due_us: int
    running: bool


class NotSettled(AssertionError):
    """Handlers did not come to an end within the real time that they were given."""

    def __init__(self, patience_s: float, tasks: Sequence[Open]) -> None:
        shown = ", ".join(
            f"{one.type} {one.id} ({'running' if one.running else 'due'})" for one in tasks[:5]
        )
        super().__init__(f"{len(tasks)} tasks did not end within {patience_s:g} s: {shown}")


class NotInMemory(NotImplementedError):
    """`MemoryCluster` does not do this; `Cluster` does."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not done in memory: test it with duly.testing.Cluster")
