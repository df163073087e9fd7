"""From a request to its answer, redirects included; each hop is checked as the first one is."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from yarl import URL

from duly.contrib.http import signature
from duly.contrib.http.connection import Answer, Way
from duly.contrib.http.errors import RefusedError
from duly.contrib.http.places import HostPattern, Place

_KEEP_METHOD: Final = frozenset({307, 308})
_TO_GET: Final = frozenset({303})
_SAFE_ONLY: Final = frozenset({301, 302})  # others would become a GET, whose 200 says nothing
_SAFE: Final = frozenset({"GET", "HEAD"})
_MAY_LEAVE: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-encoding", "content-language",
     "content-type", "user-agent"}
)  # fmt: skip


class Message(NamedTuple):
    """What is sent."""

    method: str
    content: bytes | None
    headers: Mapping[str, str]
    """Those of the task."""
    own: Mapping[str, str]
    """Those of this worker, which go wherever the request goes."""
    sign: Callable[[bytes], str] | None
    """Makes the signature for a body; None: it is not signed."""

    def all_headers(self) -> dict[str, str]:
        """Every header, to be sent now."""
        signed = {} if self.sign is None else {signature.HEADER: self.sign(self.content or b"")}
        return {**self.headers, **self.own, **signed}

    def elsewhere(self) -> "Message":
        """The same for another origin: without what may be, or is made with, a secret."""
        kept = {name: it for name, it in self.headers.items() if name.lower() in _MAY_LEAVE}
        return self._replace(headers=kept, sign=None)

    def as_get(self) -> "Message":
        """What a 303 asks for (RFC 9110, section 15.4.4)."""
        kept = {n: it for n, it in self.headers.items() if not n.lower().startswith("content-")}
        method = "HEAD" if self.method == "HEAD" else "GET"
        return self._replace(method=method, headers=kept, content=None)


async def exchange(
    way: Way,
    place: Place,
    message: Message,
    *,
    is_expected: Callable[[int], bool],
    redirects: int,
    hosts: Sequence[HostPattern],
    keep_bytes: int,
) -> tuple[Answer, int]:
    """The answer, and how many redirects were followed to it.

    `hosts`: the only ones that are asked; none: any. Raises RefusedError and ConnectionFailedError
    as `Way.ask` does, and RefusedError for a host or a redirect that is not allowed.
    """
    followed = 0
    while True:
        if hosts and not place.is_one_of(hosts):
            raise RefusedError(f"{place.host}:{place.port} is not among the hosts that are allowed")
        answer = await way.ask(
            place, message.method, message.all_headers(), message.content, keep_bytes=keep_bytes
        )
        location = answer.headers.get("Location")
        if is_expected(answer.status) or not redirects or location is None:
            return answer, followed
        if not _leads_on(answer.status, message.method):
            return answer, followed
        if followed == redirects:
            raise RefusedError(f"{place.host} redirects after {redirects} redirects once more")
        followed += 1
        there = _target(place, location)
        if answer.status in _TO_GET:
            message = message.as_get()
        if there.origin != place.origin:
            message = message.elsewhere()
        place = there


def _leads_on(status: int, method: str) -> bool:
    return status in _KEEP_METHOD | _TO_GET or (status in _SAFE_ONLY and method in _SAFE)


def _target(place: Place, location: str) -> Place:
    try:
        there = Place.of(str(place.url.join(URL(location, encoded=True))))
    except ValueError as error:
        raise RefusedError(f"{place.host} redirects to a URL that is refused: {error}") from None
    if (place.scheme, there.scheme) == ("https", "http"):
        raise RefusedError(f"{place.host} redirects from https to http")
    return there
