"""How the settings that are more than a number are read and checked: URLs, tokens, names.

Each reader takes a text, or what a TOML file held, and raises ValueError that says what is allowed.
"""

import hashlib
import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, TypeGuard, get_args
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from duly.storage import redis_url, writer
from duly.wheel.durations import parse_time

Role = Literal["read", "payload-view", "submit", "admin"]
"""What a token may do; each role may also do all that those before it may."""

REGION: Final = "[A-Za-z0-9_.-]{1,50}"
"""Matches the name of a region."""

STORES_MAX: Final = 64
"""Most databases that tasks may be divided over."""

# What the hash of an unset shell variable is; as a token it would let everybody in.
_HASH_OF_NOTHING: Final = hashlib.sha256(b"").hexdigest()


class Token(msgspec.Struct, frozen=True):
    """One access token of the HTTP API; only its hash is known here."""

    name: str
    role: Role
    sha256: str
    """SHA-256 of the token, 64 lower-case hexadecimal digits."""
    expires_at: datetime | None = None
    """From this instant on the token is refused; None: never."""


class Region(msgspec.Struct, frozen=True):
    """Another cluster, and how it is asked."""

    name: str
    url: str
    """Of its API, without a slash at the end and without the token."""
    token: str | None = None


def read_database_url(value: object) -> str:
    """A PostgreSQL URL of one host or several, of which the one that takes writes is used."""
    url = _url(value, "postgresql", "postgres")
    hosts = [host for host, _ in writer.hosts(url)]
    options = parse_qs(url.partition("?")[2])
    if len(hosts) > 1 and not all(hosts):
        raise ValueError("a URL without empty hosts: postgresql://user:password@one,two:5433/name")
    if not all(_can_be_split(single) for _, single in writer.hosts(url)):
        raise ValueError("a URL with IPv6 addresses in brackets: postgresql://[::1]:5432/name")
    if not all(map(_is_host_and_port, hosts)):
        raise ValueError("a URL whose ports are from 1 to 65535")
    if any("," in host for host in options.get("host", [])):
        raise ValueError("a URL with its hosts before the path: postgresql://one,two:5433/name")
    if set(options.get("target_session_attrs", [])) - {"read-write", "primary"}:
        raise ValueError("a URL with target_session_attrs=read-write, or without it")
    return url


def read_database_urls(value: object) -> tuple[str, ...]:
    """The stores, in their order; a comma within a URL of several hosts ends no URL."""
    allowed = "PostgreSQL URLs of different databases, separated by commas"
    urls = re.split(r"\s*,\s*(?=postgres(?:ql)?://)", value) if isinstance(value, str) else value
    if not isinstance(urls, list):
        raise ValueError(allowed)  # noqa: TRY004 - as all readers
    read = tuple(map(read_database_url, urls))
    if len(set(read)) < len(read) or len(read) > STORES_MAX:
        raise ValueError(f"{allowed}, at most {STORES_MAX}")
    return read


def read_redis_url(value: object) -> str:
    """A URL of Redis or Valkey, by TCP, TLS or socket, of the Sentinels that know the master, or of a cluster."""
    redis_url.check(value)
    return str(value)


def read_lease_urls(value: object) -> tuple[str, ...]:
    """The lease servers: an odd number, so that there is a majority, and no server twice.

    Independent masters, neither Sentinels nor a cluster: what a failover loses must not be a lease on a majority.
    """
    allowed = "Redis URLs of 1, 3 or 5 different servers, separated by commas"
    urls = tuple(_items(value, allowed))
    places = {redis_url.place(url) for url in urls}
    if len(urls) not in (1, 3, 5) or len(places) < len(urls):
        raise ValueError(allowed)
    return urls


def read_tokens(value: object) -> tuple[Token, ...]:
    """Access tokens. A name may have two, so that a token can be replaced without a gap."""
    allowed = (
        "name:role:hash or name:role:hash:expiry, separated by commas; role read, payload-view, "
        "submit or admin; hash SHA-256 in hex; expiry a time such as 2027-01-31T00:00Z"
    )
    tokens: list[Token] = []
    for item in _items(value, allowed):
        name, _, rest = item.partition(":")
        role, _, rest = rest.partition(":")
        digest, colon, expiry = rest.partition(":")
        digest = digest.lower()
        if not re.fullmatch(r"[A-Za-z0-9_.@-]{1,100}", name) or not re.fullmatch(
            "[0-9a-f]{64}", digest
        ):
            raise ValueError(allowed)
        if not _is_role(role):
            raise ValueError(allowed)
        if digest == _HASH_OF_NOTHING:
            raise ValueError(f"hashes of tokens, but the one of {name} is of an empty text")
        if any(digest == token.sha256 for token in tokens):
            raise ValueError(f"different tokens, but the one of {name} is there twice")
        tokens.append(Token(name, role, digest, read_expiry(expiry) if colon else None))
    return tuple(tokens)


def read_expiry(text: str) -> datetime:
    """The end of a token's life: RFC 3339, the seconds may be left out."""
    try:
        return parse_time(re.sub(r"(T[0-9]{2}:[0-9]{2})(?!:)", r"\1:00", text, count=1))
    except ValueError:
        raise ValueError(
            "tokens whose expiry is a time with an offset, such as 2027-01-31T00:00Z"
        ) from None


def read_webhook_url(value: object) -> str:
    """A URL that is asked by HTTP."""
    url = _url(value, "http", "https")
    if not _can_be_split(url) or not urlsplit(url).hostname:
        raise ValueError("a URL with a host, such as https://hooks.example.org/duly")
    return url


def read_region(value: object) -> str:
    """The name of a region, safe in a header and a URL."""
    if not isinstance(value, str) or not re.fullmatch(REGION, value):
        raise ValueError("1 to 50 of the characters A-Z a-z 0-9 _ . -")
    return value


def read_regions(value: object) -> tuple[Region, ...]:
    """Regions as `name=URL`; the token is the URL's password, percent-encoded where it has to be."""
    allowed = (
        "name=URL, separated by commas; the URL with the token as its password, such as "
        "eu=https://:TOKEN@duly.eu.example.org"
    )
    regions: list[Region] = []
    for item in _items(value, allowed):
        name, _, url = item.partition("=")
        if not re.fullmatch(REGION, name) or not _can_be_split(url):
            raise ValueError(allowed)
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or not _is_host_and_port(place)
            or parts.query
            or parts.fragment
            or (parts.username is not None and not parts.password)
        ):
            raise ValueError(allowed)
        if any(name == region.name for region in regions):
            raise ValueError(f"different regions, but {name} is there twice")
        token = None if parts.password is None else unquote(parts.password)
        regions.append(Region(name, f"{parts.scheme}://{place}{parts.path.rstrip('/')}", token))
    return tuple(regions)


def read_host(value: object) -> str:
    """An address or a name to bind to."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:%-]{1,255}", value):
        raise ValueError("an IP address (IPv6 without brackets) or a host name")
    return value


def read_path(value: object) -> str:
    """A path of a file; whether it is there is found out by whoever reads it."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("the path of a file")
    return value


def read_node_name(value: object) -> str:
    """A name for people, safe in a Redis key, a log line and a URL."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", value):
        raise ValueError("1 to 100 of the characters A-Z a-z 0-9 _ . : -")
    return value


# An error may show these, without the password; the path of another may be a secret.
_SHOWN_URLS: Final = frozenset({"database_url", "database_urls", "redis_url", "lease_redis_urls"})

READERS: Final[dict[str, Callable[[object], object]]] = {
    "database_url": read_database_url,
    "database_urls": read_database_urls,
    "redis_url": read_redis_url,
    "lease_redis_urls": read_lease_urls,
    "host": read_host,
    "tokens": read_tokens,
    "tls_cert": read_path,
    "tls_key": read_path,
    "node_name": read_node_name,
    "alert_webhook_url": read_webhook_url,
    "region": read_region,
    "regions": read_regions,
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; a name other than `localhost` may be anything."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def redact_url(url: str) -> str:
    """The URL without its password; hides too much of a malformed one rather than too little."""
    url = re.sub(r"^([\w+.-]*://)?([^:@/]*):.*@", r"\1\2:***@", url, flags=re.DOTALL)
    return re.sub(r"(password=)[^&\s]*", r"\1***", url, flags=re.IGNORECASE)


def redact_webhook(url: str) -> str:
    """Where it goes alone: the path of such a URL is often all that protects it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/***"


def redact_region(region: Region) -> str:
    """The region without its token."""
    scheme, _, place = region.url.partition("://")
    return f"{region.name}={scheme}://{':***@' if region.token else ''}{place}"


def redact_token(token: Token) -> str:
    """The token without its hash."""
    until = f":{token.expires_at.isoformat()}" if token.expires_at else ""
    return f"{token.name}:{token.role}{until}"


def shown(name: str, value: object) -> object:
    """What an error may show of a setting's wrong value."""
    if name in _SHOWN_URLS and isinstance(value, str):
        return redact_url(value)
    return "***" if name.endswith(("_url", "_urls")) or name in ("tokens", "regions") else value


def _is_host_and_port(text: str) -> bool:
    match = re.fullmatch(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?", text)
    return match is not None and (not match[1] or 1 <= int(match[1]) <= 65_535)


def _can_be_split(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:
        return False
    return True


def _is_role(text: str) -> TypeGuard[Role]:
    return text in get_args(Role)


def _url(value: object, *schemes: str) -> str:
    starts = tuple(f"{scheme}://" for scheme in schemes)
    if not isinstance(value, str) or not value.startswith(starts):
        raise ValueError("a URL that begins with " + " or ".join(starts))
    return value


def _items(value: object, allowed: str) -> list[str]:
    """The items of a comma-separated text, or of a list of texts from a TOML file."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(allowed)
    return [item.strip() for item in items if item.strip()]
