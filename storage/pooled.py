"""PostgreSQL behind a pooler in transaction mode, such as PgBouncer: nothing outlives a transaction.

A URL says so by its parameter `pooler=transaction`. Then every statement runs in a transaction that first sets what
a session would have been set to, by statements without names; and the process that serves it is asked for, since
the one that a pooler tells is made up.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from duly.storage.queries import statements

T = TypeVar("T")

_PARAMETER: Final = re.compile(r"(?P<before>[?&])pooler=(?P<mode>[^&]*)(?P<after>&|$)")
_OF_CONNECTIONS: Final = re.compile("tcp_")
"""Settings of the connection to the server, which is the pooler's."""


def split(url: str) -> tuple[str, bool]:
    """The URL without `pooler`, and whether that is `transaction`; raises ValueError for another value."""
    match = _PARAMETER.search(url)
    if match is None:
        return url, False
    if match["mode"] != "transaction":
        raise ValueError("pooler: must be transaction; leave it out for a pooler in session mode")
    rest = match["before"] if match["after"] else ""
    return url[: match.start()] + rest + url[match.end() :], True


async def in_transaction(
    connection: Any,
    settings: Mapping[str, str],
    work: Callable[[Any], Awaitable[T]],
    served_by: Callable[[int], None],
    *,
    snapshot: bool = False,
) -> T:
    """Run `work(connection)` as one transaction with these `settings`; `served_by` is told the process first.

    `snapshot`: it only reads, and all as of one instant.
    """
    lasting = {name: of for name, of in settings.items() if not _OF_CONNECTIONS.match(name)}
    isolation = "repeatable_read" if snapshot else "read_committed"
    async with connection.transaction(isolation=isolation, readonly=snapshot):
        pid = await connection.fetchval(
            statements()["begin_pooled"], list(lasting), list(lasting.values())
        )
        served_by(pid)
        return await work(connection)
