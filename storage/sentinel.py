"""Redis behind Sentinel: which server is the master is asked anew for every connection.

A URL names the Sentinels, the service that they watch, and the database:

    redis+sentinel://user:password@host1:26379,host2:26379,host3:26379/mymaster/0

User and password are those of the Redis servers; those of the Sentinels, if they ask for any, follow
as `?sentinel_username=…&sentinel_password=…`. A server that answers READONLY has become a replica: its
connections are dropped (`storage.redis.call`), and the next call asks the Sentinels.
"""

import asyncio
import contextlib
import re
import time
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import Connection, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from duly.storage.redis_client import Client

SCHEME = "redis+sentinel"
_PORT = 26379
_ASK_S = 0.5
"""Longest wait for one Sentinel: one that swallows packets must not use up the call's own time."""
_LOOK_EVERY_S = 2.0

_QUERY = frozenset({"sentinel_username", "sentinel_password"})
# Not `urlsplit`: newer versions of it take an IPv6 address for an error unless it is the only host.
_URL = re.compile(
    SCHEME.replace("+", r"\+") + "://(?:(?P<username>[^:/?#]*)(?::(?P<password>[^/?#]*))?@)?"
    r"(?P<hosts>[^@/?#]+)/(?P<service>[^/?#]+)(?:/(?P<db>[0-9]{0,9}))?(?:\?(?P<query>[^#]*))?"
)


class SentinelUrl(NamedTuple):
    """What such a URL says."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    db: int
    username: str | None
    password: str | None
    sentinel_username: str | None
    sentinel_password: str | None


def parse(url: str) -> SentinelUrl:
    """Raises ValueError that says what is allowed."""
    allowed = f"{SCHEME}://[user:password@]host:port,host:port,…/service/database"
    said = _URL.fullmatch(url)
    if said is None:
        raise ValueError(allowed)
    query = dict(parse_qsl(said["query"] or "", keep_blank_values=True))
    try:
        sentinels = tuple(_address(host) for host in said["hosts"].split(","))
    except ValueError:
        raise ValueError(allowed) from None
    if set(query) - _QUERY or len(set(sentinels)) < len(sentinels):
        raise ValueError(allowed)
    return SentinelUrl(
        sentinels,
        unquote(said["service"]),
        int(said["db"] or "0"),
        unquote(said["username"] or "") or None,
        unquote(said["password"] or "") or None,
        query.get("sentinel_username") or None,
        query.get("sentinel_password") or None,
    )


def _address(text: str) -> tuple[str, int]:
    place = urlsplit(f"//{text}")
    if not place.hostname or place.port == 0 or "@" in text:
        raise ValueError(text)
    return place.hostname, place.port or _PORT


def master_client(url: str, **options: Any) -> Redis:
    """A pooled client of whichever server is the master; `options` as for `Redis`.

    Raises ValueError as `parse` does.
    """
    said = parse(url)
    login = {"username": said.username, "password": said.password}
    pool = _MasterPool(said.service, _Sentinels(said), db=said.db, **login, **options)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    return Client.from_pool(pool)


class _Sentinels:
    """Asks one after the other, each for a bounded time; the one that answered last comes first."""

    def __init__(self, said: SentinelUrl) -> None:
        self._addresses = list(said.sentinels)
        self._said = said

    async def discover_master(self, service: str) -> tuple[str, int]:
        """Where the master is. Raises MasterNotFoundError."""
        errors = []
        for address in tuple(self._addresses):
            try:
                async with asyncio.timeout(_ASK_S):
                    found = await self._ask(address, service)
            except (RedisError, OSError, TimeoutError) as error:
                errors.append(f"{address[0]}:{address[1]}: {str(error) or type(error).__name__}")
            else:
                if found:
                    return found
                errors.append(f"{address[0]}:{address[1]}: knows no service {service}")
            self._addresses.remove(address)
            self._addresses.append(address)
        raise MasterNotFoundError(f"no Sentinel names the master: {'; '.join(errors)}")

    async def _ask(self, address: tuple[str, int], service: str) -> tuple[str, int] | None:
        connection = Connection(
            host=address[0],
            port=address[1],
            username=self._said.sentinel_username,
            password=self._said.sentinel_password,
            protocol=2,
            socket_connect_timeout=_ASK_S,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # as above
            await connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
            found = await connection.read_response()
        finally:
            await connection.disconnect(nowait=True)  # never waits: a cancelled call closes it too
        return (found[0].decode(), int(found[1])) if found else None


class _MasterPool(SentinelConnectionPool):
    """Looks every other second whether the master is still the same.

    A master that was replaced while it was up takes writes for some seconds more, until its Sentinels
    make a replica of it; these writes are lost then.
    """

    _looked_at = 0.0

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """As the library's, after a look; without Sentinels it goes on with the master it knows."""
        if self.master_address and time.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            with contextlib.suppress(MasterNotFoundError):
                await self.get_master_address()  # type: ignore[no-untyped-call]
        return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
