"""What a URL of Redis may say; the client library takes more, and fails on it only when it connects."""

import ipaddress
import posixpath
import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from duly.storage import cluster_url, sentinel, url_options

_SCHEMES: Final = ("redis", "rediss", "unix")
_PORT: Final = 6379
_OPTIONS: Final = {"db": url_options.NUMBER, "username": ".+", "password": ".+"}


def check(url: object) -> None:
    """Raise ValueError, whose text says what is allowed, unless nodes and workers can use the URL."""
    if isinstance(url, str) and url.startswith(f"{sentinel.SCHEME}://"):
        sentinel.parse(url)
    elif isinstance(url, str) and cluster_url.is_cluster(url):
        cluster_url.parse(url)
    elif isinstance(url, str) and url.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        place(url)
    else:
        raise ValueError(
            "a redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// URL"
        )


def place(url: str) -> str:
    """The server that the URL leads to, whatever its database: two URLs of one server give one text.

    The three usual names of this machine are one. Raises ValueError that says what is allowed, also
    for a URL of Sentinels or of a cluster.
    """
    parts = _split(url)
    _check_options(parts)
    if parts.scheme == "unix":
        if parts.hostname or len(parts.path) < 2:
            raise ValueError("unix:// and the absolute path of a socket: unix:///run/redis.sock")
        return posixpath.normpath(unquote(parts.path))
    if not re.fullmatch(f"/?|/{url_options.NUMBER}", parts.path):
        raise ValueError(
            "a URL whose path is empty or the number of a database: redis://host:6379/0"
        )
    return f"{_host(parts)}:{parts.port or _PORT}"


def _split(url: str) -> SplitResult:
    if not url.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        raise ValueError("a URL that begins with redis:// or rediss:// or unix://")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("a URL with an IPv6 address in brackets: redis://[::1]:6379/0") from None
    try:
        port_is_right = parts.port != 0
    except ValueError:
        port_is_right = False
    if not port_is_right:
        raise ValueError("a URL whose port is from 1 to 65535")
    # A password with a bare ? or # in it ends up here: what follows must not be shown as an option.
    if "@" in parts.query or "#" in url:
        raise ValueError("a URL with %40 for @, %3F for ? and %23 for # in its names and passwords")
    return parts


def _check_options(parts: SplitResult) -> None:
    allowed = _OPTIONS | (url_options.TLS_OPTIONS if parts.scheme == "rediss" else {})
    has_database = parts.scheme != "unix" and parts.path.strip("/")
    url_options.read(parts.query, allowed, frozenset({"db"} if has_database else ()))


def _host(parts: SplitResult) -> str:
    name = unquote(parts.hostname or "localhost").lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return "localhost" if str(address) in ("127.0.0.1", "::1") else str(address)
