"""Finds the server that takes writes, among the hosts of a database URL.

asyncpg tries the hosts of a URL one after the other too, but within one time limit: a first host that
swallows packets uses it up. Here each host has its share, and the one that was right last comes first.
"""

import re
from collections.abc import Callable
from typing import Any

import asyncpg

from duly.storage import pooled
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

    pooled: bool
    """Whether connections are to a pooler in transaction mode: one keeps nothing after a transaction."""

    def __init__(self, url: str) -> None:
        try:
            plain, self.pooled = pooled.split(url)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        self._hosts = hosts(plain)
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
        """A new connection, within `timeout_s`; `settings` are those of its session (a pooled one has but its name).

        Raises `RefusedError` if every host refuses us, else `StoreUnavailableError`.
        """
        share_s = timeout_s / len(self._hosts)
        failures: list[tuple[str, Exception]] = []
        for name, url in list(self._hosts):
            try:
                connection = await asyncpg.connect(url, timeout=share_s, **self._options(settings))
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

    async def connect_session(self, timeout_s: float, settings: dict[str, str]) -> Any:
        """As `connect`, for work that needs a session of its own: raises `RefusedError` if there is a pooler."""
        if self.pooled:
            raise RefusedError(
                "this needs a session of its own: give the URL of PostgreSQL itself, without pooler=transaction"
            )
        return await self.connect(timeout_s, settings)

    def _options(self, settings: dict[str, str]) -> dict[str, Any]:
        if not self.pooled:
            return {
                "server_settings": settings,
                "target_session_attrs": "read-write",
                # The statements are always the same; to prepare one anew is one more transaction.
                "max_cached_statement_lifetime": 0,
            }
        name = {key: of for key, of in settings.items() if key == "application_name"}
        # Whether it takes writes is asked in a statement of its own, which another server may be given.
        return {"server_settings": name, "statement_cache_size": 0}


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
