"""How a delivery fails; the names are the `type` of the attempt's error.

Those that are a `Fail` end the task, the others leave it to its retries.
"""

from duly.nodes.worker import Fail, Retry


class RefusedError(Fail):
    """This worker does not send such a request: the host, its address or a redirect is not allowed."""


class UnexpectedStatusError(Fail):
    """The server refused the request; the same request would be refused again."""


class TryAgainError(Retry):
    """The server said that it may work later."""


class ConnectionFailedError(Exception):
    """The name was not found, or the connection not made, or it broke."""


class DeadlineError(Exception):
    """The answer was not there in time."""
