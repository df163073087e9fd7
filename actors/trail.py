"""Log lines about single tasks, with the fields by which the lines of all nodes and workers fit together."""

import logging
from collections.abc import Iterable
from uuid import UUID

from duly.storage.layout import slot_of


def fields(task_id: UUID, token: int | None = None) -> dict[str, object]:
    """What a log line of this task carries as `extra`; the token is that of the attempt, if known."""
    found: dict[str, object] = {"task_id": str(task_id), "slot": slot_of(task_id)}
    if token is not None:
        found["token"] = token
    return found


def tell(log: logging.Logger, what: str, attempts: Iterable[tuple[UUID, int]]) -> None:
    """A line for each attempt (id, token), at debug level: there are as many as there are tasks."""
    if log.isEnabledFor(logging.DEBUG):
        for task_id, token in attempts:
            log.debug("%s", what, extra=fields(task_id, token))
