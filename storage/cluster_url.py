"""The URL of a Redis Cluster. It names some of its servers, which are asked for the others:

    redis+cluster://user:password@host1:6379,host2:6379,host3:6379

User and password are those of every server. `rediss+cluster://` is the same by TLS, with the options that
`rediss://` has. A cluster has the database 0 alone.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from duly.storage import url_options

SCHEME: Final = "redis+cluster"
TLS_SCHEME: Final = "rediss+cluster"
_PORT: Final = 6379

# Not `urlsplit`: newer versions of it take an IPv6 address for an error unless it is the only host.
_URL: Final = re.compile(
    r"(?P<scheme>rediss?\+cluster)://(?:(?P<username>[^:/?#]*)(?::(?P<password>[^/?#]*))?@)?"
    r"(?P<hosts>[^@/?#\s]+)(?:/0?)?(?:\?(?P<query>[^#]*))?"
)


class ClusterUrl(NamedTuple):
    """What such a URL says; `tls`: the client library's options, None: no TLS."""

    servers: tuple[tuple[str, int], ...]
    username: str | None
    password: str | None
    tls: dict[str, str | bool] | None


def is_cluster(url: object) -> bool:
    """Whether it is the URL of a cluster, right or wrong."""
    return isinstance(url, str) and url.startswith((f"{SCHEME}://", f"{TLS_SCHEME}://"))


def parse(url: str) -> ClusterUrl:
    """Raises ValueError that says what is allowed."""
    allowed = (
        f"{SCHEME}:// or {TLS_SCHEME}://[user:password@]host:port,host:port,…, without a database"
    )
    said = _URL.fullmatch(url)
    # A password with a bare ? in it ends up in the query: that must not be shown as an option.
    if said is None or "@" in (said["query"] or ""):
        raise ValueError(allowed)
    try:
        servers = tuple(_address(host) for host in said["hosts"].split(","))
    except ValueError:
        raise ValueError(allowed) from None
    if len(set(servers)) < len(servers):
        raise ValueError(f"{allowed}, each server once")
    by_tls = said["scheme"] == TLS_SCHEME
    options = url_options.read(said["query"] or "", url_options.TLS_OPTIONS if by_tls else {})
    return ClusterUrl(
        servers,
        unquote(said["username"] or "") or None,
        unquote(said["password"] or "") or None,
        {name: _value(name, value) for name, value in options.items()} if by_tls else None,
    )


def _value(name: str, value: str) -> str | bool:
    return value == "true" if name == "ssl_check_hostname" else value


def _address(text: str) -> tuple[str, int]:
    place = urlsplit(f"//{text}")
    if not place.hostname or place.port == 0 or "@" in text:
        raise ValueError(text)
    return place.hostname, place.port or _PORT
