"""Finds the server that takes writes, among the hosts of a database URL.

asyncpg tries the hosts of a URL one after the other too, but within one time limit: a first host that
swallows packets uses it up. Here each host has its share, and the one that was right last comes first.
"""

import re
from collections.abc import Callable
from typing import Any

import asyncpg

from duly.storage.errors import RefusedError, StoreUnavailableError

_URL = re.compile(r"(?P<head>\w+://(?:[^/?#]*@)?)(?P<hosts>[^/?#@]*)(?P<tail>.*)", re.DOTALL)

# The server will not let us in, whenever we come.
_REFUSALS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    ValueError,  # the URL
)
_TROUBLE = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # such as "not the writer"
    ValueError,
)


class Writer:
    """Makes connections to the one server, of those that `url` names, that takes writes.

    `suspect` says that it may be another one by now: what is connected then is not to be used again.
    """

    def __init__(self, url: str) -> None:
        self._hosts = hosts(url)
        self.generation = 0
        """Grows with each suspicion; a connection is of the generation in which it was asked for."""
        self._listeners: list[Callable[[], None]] = []

    def on_suspicion(self, call: Callable[[], None]) -> None:
        """Call this whenever the writer may be another one."""
        self._listeners.append(call)

    def suspect(self) -> None:
        """Whatever is connected may be connected to a server that is no longer the writer, or is gone."""
        self.generation += 1
        for call in self._listeners:
            call()

    async def connect(self, timeout_s: float, settings: dict[str, str]) -> Any:
        """A new connection, within `timeout_s`; `settings` are those of its session.

        Raises `RefusedError` if every host refuses us, else `StoreUnavailableError`.
        """
        share_s = timeout_s / len(self._hosts)
        failures: list[tuple[str, Exception]] = []
        for name, url in list(self._hosts):
            try:
                connection = await asyncpg.connect(
                    url,
                    timeout=share_s,
                    server_settings=settings,
                    target_session_attrs="read-write",
                )
            except _TROUBLE as error:  # TimeoutError is an OSError
                failures.append((name, error))
                continue
            if self._hosts[0][0] != name:
                self._hosts.sort(key=lambda host: host[0] != name)
            return connection
        said = "; ".join(f"{name or 'the server'}: {_text(error)}" for name, error in failures)
        refused = all(isinstance(error, _REFUSALS) for _, error in failures)
        kind = RefusedError if refused else StoreUnavailableError
        raise kind(f"no connection to PostgreSQL: {said}") from failures[-1][1]


def hosts(url: str) -> list[tuple[str, str]]:
    """Each `host:port` of a URL, with a URL of it alone."""
    match = _URL.fullmatch(url)
    if match is None:
        return [("", url)]
    head, tail = match["head"], match["tail"]
    return [(host, f"{head}{host}{tail}") for host in match["hosts"].split(",")]


def _text(error: Exception) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "refuses to write: a standby, or set to read-only"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
