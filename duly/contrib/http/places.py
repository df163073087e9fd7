"""Where a request goes: a URL that has been read once, so that what is checked is what is asked.

A URL is parsed here and nowhere else. Whatever two parsers might read differently (users before an
`@`, backslashes, spaces, numbers in the place of an address) is refused.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from yarl import URL

URL_CHARS_MAX: Final = 8_000
"""Longest URL."""

_ODD: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAME: Final = re.compile(r"(?=.{1,253}\.?$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*"
                          r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?")  # fmt: skip
_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}", re.ASCII)
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_PATTERN: Final = re.compile(r"(\*\.)?([^*:/?#@\[\]]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")


class Place(NamedTuple):
    """A URL, and the server that it names."""

    url: URL
    scheme: str
    host: str
    """Lower case, names in their ASCII form, without a dot at the end; IPv6 without brackets."""
    port: int

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read a URL; raises ValueError that says what is wrong with it."""
        if len(text) > URL_CHARS_MAX:
            raise ValueError(f"{len(text)} characters are more than {URL_CHARS_MAX}")
        if _ODD.search(text):
            raise ValueError("it has a space, a backslash or a control character in it")
        try:
            url = URL(text)
            port = url.port
        except ValueError as error:
            raise ValueError(str(error) or "it is no URL") from None
        if url.scheme not in ("http", "https"):
            raise ValueError("it does not begin with http:// or https://")
        if url.raw_user is not None or url.raw_password is not None:
            raise ValueError("it has a user in it: use the header Authorization")
        host = _checked_host((url.raw_host or "").lower())
        if not port:
            raise ValueError("its port is not 1 to 65535")
        return cls(_as_written(url, text), url.scheme, host, port)

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a header with a secret in it must not leave (RFC 6454)."""
        return self.scheme, self.host, self.port

    def is_one_of(self, patterns: "Sequence[HostPattern]") -> bool:
        """Whether its host is among these."""
        return any(pattern.matches(self) for pattern in patterns)


class HostPattern(NamedTuple):
    """Hosts that may be asked: a name, or all below one."""

    host: str
    below: bool
    """Whether it means the names that end with it, and not the host itself."""
    port: int | None
    """None: any."""

    @classmethod
    def of(cls, text: str) -> "HostPattern":
        """Read `host`, `*.host`, `host:port`, `*.host:port`; raises ValueError."""
        found = _PATTERN.fullmatch(text.lower())
        if found is None:
            raise ValueError(f"{text!r} is not a host such as api.example.org or *.example.org")
        below, host, port = found.groups()
        if port is not None and not 1 <= int(port) <= 65_535:
            raise ValueError(f"the port of {text!r} is not 1 to 65535")
        place = Place.of(f"https://{host}")
        if below and (":" in place.host or _IPV4.fullmatch(place.host)):
            raise ValueError(f"{text!r}: there are no names below an address")
        return cls(place.host, below is not None, None if port is None else int(port))

    def matches(self, place: Place) -> bool:
        """Whether the place's host (and port) is one of these."""
        if self.port not in (None, place.port):
            return False
        return place.host.endswith(f".{self.host}") if self.below else place.host == self.host


def _as_written(url: URL, text: str) -> URL:
    """The same with path and query as they stand in `text`, %2F and all: they may be signed."""
    if not text.isascii():
        return url
    raw = URL(text, encoded=True)
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=raw.raw_path,
        query_string=raw.raw_query_string,
        encoded=True,
    )


def _checked_host(host: str) -> str:
    if ":" in host:  # yarl has read it as an IPv6 address
        if "%" in host:
            raise ValueError("its host is an address with a zone")
        return host
    if not host or not _NAME.fullmatch(host):
        raise ValueError("its host is not a name or an address")
    # 127.1, 0x7f000001 and 2130706433 are addresses to some resolvers (WHATWG URL, section 3.5).
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) and not _IPV4.fullmatch(host):
        raise ValueError("its host is not an IPv4 address in the form 192.0.2.1")
    return host.rstrip(".")
