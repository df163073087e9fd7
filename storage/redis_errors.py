"""What the client library raises, where that is not what callers can tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import OutOfMemoryError, ResponseError


class PrimaryAwayError(ResponseError):
    """The primary of a Redis Cluster that has the key does not serve it now: it is away, or the key on its way.

    It is trouble of the queues whose keys are there; those of other primaries go on.
    """


class PrimaryRefusesError(PrimaryAwayError, OutOfMemoryError):
    """The primary answers, and takes no writes: it is out of memory, or lacks replicas or a place to save to."""


def is_of_one_queue(error: BaseException) -> bool:
    """Whether only the keys that were named are at fault: another type is there, no access, or their primary is away."""
    if isinstance(error, PrimaryAwayError):
        return True
    text = str(error)
    return isinstance(error, ResponseError) and ("WRONGTYPE" in text or "NOPERM" in text)


@contextmanager
def lost_as_trouble() -> Iterator[None]:
    """Raise ConnectionError where uvloop raises RuntimeError, which redis-py lets through.

    It does so on a write to a connection that was reset at this very moment.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        raise ConnectionResetError(str(error)) from error


def is_lost(error: RuntimeError) -> bool:
    """Whether uvloop means that the connection is lost."""
    return "handler is closed" in str(error)
