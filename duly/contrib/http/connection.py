"""One request on a connection of its own, to an address that has been checked.

The check is made where the socket is made, with the very address that it then connects to: no second
look-up can come between, and it does not matter where an address came from (a name, a URL with an
address in it, a redirect). What the server sends is bounded in every direction: lines and number of
headers, and how much of the body is read. Nothing is unpacked, no cookie is kept, nothing is sent
twice: an attempt is one request, and the next is the task's retry.
"""

import io
import logging
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver

from duly.contrib.http.addresses import Network, why_refused
from duly.contrib.http.errors import ConnectionFailedError, RefusedError
from duly.contrib.http.places import Place

log = logging.getLogger("duly.http")

_LINE_BYTES_MAX: Final = 8_190
_HEADERS_MAX: Final = 100
_READ_BYTES: Final = 16_384
_DRAINED_BYTES: Final = 65_536
"""So much of a body is read, kept or not, before the connection is closed on a server that sends more."""

_SAID_CHARS_MAX: Final = 300


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """Its begin, as it was sent."""
    truncated: bool
    """Whether there was more of it."""


class Way:
    """How requests go out: name look-ups, TLS, and the networks that are allowed."""

    def __init__(
        self, resolver: AbstractResolver, tls: ssl.SSLContext, allow_networks: Sequence[Network]
    ) -> None:
        self._resolver = resolver
        self._tls = tls
        self._allow_networks = allow_networks

    async def ask(
        self,
        place: Place,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None,
        *,
        keep_bytes: int,
    ) -> Answer:
        """Send one request, and read the begin of its answer.

        Raises RefusedError if no address of the place may be connected to, ConnectionFailedError for
        what went wrong on the way. There is no time limit here: the caller has one for everything.
        """
        gate = _Gate(place.host, self._allow_networks)
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            use_dns_cache=False,
            ssl=self._tls,
            force_close=True,
            socket_factory=gate.open,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            max_line_size=_LINE_BYTES_MAX,
            max_field_size=_LINE_BYTES_MAX,
            max_headers=_HEADERS_MAX,
            middlewares=(_once,),
        )
        async with session:
            try:
                sent = session.request(
                    method,
                    place.url,
                    headers=headers,
                    data=None if content is None else io.BytesIO(content),
                    skip_auto_headers=("Content-Type",),
                    allow_redirects=False,
                )
                async with sent as answer:
                    body, truncated = await _begin(answer.content, keep_bytes)
                    return Answer(answer.status, answer.headers, body, truncated)
            except aiohttp.InvalidURL as error:
                raise RefusedError(f"the URL of {place.host} is refused: {error}") from None
            except (aiohttp.ClientError, OSError) as error:
                if gate.refused is not None:
                    raise RefusedError(gate.refused) from None
                raise ConnectionFailedError(_what_happened(error, place)) from None


class _Gate:
    """Makes the sockets of one request, if their addresses may be connected to."""

    def __init__(self, host: str, allowed: Sequence[Network]) -> None:
        self._host = host
        self._allowed = allowed
        self.refused: str | None = None
        """Why an address was refused, if one was."""

    def open(self, place: tuple[Any, ...]) -> socket.socket:
        """A socket for this entry of `getaddrinfo`; raises OSError."""
        family, kind, protocol, _, address = place
        why = why_refused(str(address[0]), self._allowed)
        if why is None:
            return socket.socket(family, kind, protocol)
        log.warning("%s has the address %s, %s: refused", self._host, address[0], why)
        # Not the address itself: who may submit a task need not know what is inside.
        self.refused = f"{self._host} has {why}, which is not connected to"
        raise OSError(self.refused)


async def _once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a request again by itself when the connection breaks."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise  # never sent again
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError(str(error)) from None


class _BrokenError(aiohttp.ClientConnectionError):
    """The connection broke before there was an answer."""


async def _begin(body: aiohttp.StreamReader, keep_bytes: int) -> tuple[bytes, bool]:
    """The begin of a body, and whether there is more of it."""
    kept = bytearray()
    seen = 0
    while seen <= max(keep_bytes, _DRAINED_BYTES):
        part = await body.read(_READ_BYTES)
        if not part:
            break
        kept += part[: max(0, keep_bytes - seen)]
        seen += len(part)
    return bytes(kept), seen > keep_bytes


def _what_happened(error: Exception, place: Place) -> str:
    """In words, without more of the URL than the host: the rest may hold secrets."""
    said = str(getattr(error, "os_error", None) or error)[:_SAID_CHARS_MAX]
    host = f"{place.host}:{place.port}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {place.host} cannot be looked up: {said}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {host} is not good: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"TLS with {host} failed: {said}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{host} cannot be connected to: {said}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f"the answer of {host} broke off: {said}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{host} did not answer in HTTP: {error.message[:_SAID_CHARS_MAX]}"
    return f"the connection to {host} broke: {said or type(error).__name__}"
