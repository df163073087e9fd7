"""What the client library raises, where that is not what callers can tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    OutOfMemoryError,
    ResponseError,
    TryAgainError,
)

_OF_A_CLUSTER: Final = {
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterCrossSlotError: "CROSSSLOT",
    ClusterDownError: "CLUSTERDOWN",
}
"""What no other server answers, and the word of it that the library takes off the text; subclasses first."""


class PrimaryAwayError(ResponseError):
    """The primary of a Redis Cluster that has the key does not serve it now: it is away, or the key on its way.

    It is trouble of the queues whose keys are there; those of other primaries go on.
    """


class PrimaryRefusesError(PrimaryAwayError, OutOfMemoryError):
    """The primary answers, and takes no writes: it is out of memory, or lacks replicas or a place to save to."""


class InsideClusterError(ResponseError):
    """A plain URL leads to a server of a Redis Cluster, which has some of the keys at most: the URL is wrong.

    `said`: the server's own words.
    """

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(
            f"this server is one of a Redis Cluster ({said}): name the cluster by redis+cluster:// "
            "or rediss+cluster://, and give the leases servers of their own"
        )


def inside_cluster(error: BaseException) -> InsideClusterError | None:
    """What to raise where a client of one server gets this error; None if it tells of no cluster."""
    if isinstance(error, MasterDownError):
        return None  # the library's subclass of ClusterDownError: any replica may say so
    for kind, word in _OF_A_CLUSTER.items():
        if isinstance(error, kind):
            return InsideClusterError(f"{word} {str(error).removeprefix(word).strip()}".strip())
    return None


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
