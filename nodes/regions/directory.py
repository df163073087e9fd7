"""The regions that this cluster knows, and asking them over HTTP."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import aiohttp

from duly.actors.runtime import Reply
from duly.nodes.regions.messages import FORWARDED_BY, Verdict
from duly.nodes.setting_values import Region

log = logging.getLogger("duly.regions")

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10.0, sock_connect=3.0)
_CONNECTIONS: Final = 50


class Answer(NamedTuple):
    """What a region answered."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class UnreachableError(Exception):
    """A region did not answer. `sent`: the request may have arrived."""

    def __init__(self, region: str, detail: str, *, sent: bool) -> None:
        super().__init__(f"region {region}: {detail}")
        self.sent = sent


class Regions:
    """Of one node; outlives the actors that use it. `own` is None where no region was named."""

    def __init__(self, own: str | None, others: tuple[Region, ...]) -> None:
        self.own = own
        self.others: Mapping[str, Region] = {one.name: one for one in others if one.name != own}
        self.failing: dict[str, str] = {}
        """Regions that cannot be handed tasks, and why; kept by the forwarder."""
        self.depths: Mapping[tuple[str, str], int] = {}
        """How many tasks wait or were refused, by region and state; as of the last count."""
        self.oldest: Mapping[str, datetime] = {}
        """When the first of those was submitted that wait for a region."""
        self.kicks = {name: asyncio.Event() for name in self.others}
        """Set when tasks may wait for a region."""
        self.replies: dict[UUID, Reply[Verdict]] = {}
        """Of submissions that somebody waits for."""
        self._session: aiohttp.ClientSession | None = None

    @property
    def known(self) -> list[str]:
        """The names that a submission may give, this cluster's own first."""
        return [*([] if self.own is None else [self.own]), *self.others]

    def is_other(self, region: str | None) -> bool:
        """Whether tasks of this region are handed on."""
        return region in self.others

    def objection(self, region: str | None) -> str | None:
        """What is wrong with the name of a region, None if nothing is."""
        if region is None or region == self.own or region in self.others:
            return None
        if not self.known:
            return "is not known: this cluster has no regions"
        return f"must be one of {', '.join(self.known)}"

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        region: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request once, marked as forwarded; `path` is with its query, encoded.

        Raises `UnreachableError` without an answer.
        """
        other = self.others[region]
        assert self.own is not None
        sent = {FORWARDED_BY: self.own, **(headers or {})}
        if other.token is not None:
            sent["Authorization"] = f"Bearer {other.token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        if self._session is None:
            connector = aiohttp.TCPConnector(limit_per_host=_CONNECTIONS)
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector)
        try:
            async with self._session.request(
                method, other.url + path, data=body, headers=sent, allow_redirects=False
            ) as answer:
                return Answer(answer.status, await answer.read(), answer.headers)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(region, _text(error), sent=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(region, _text(error), sent=True) from error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
