"""A node's settings: one frozen value, read once at start and handed to whoever needs it.

Each comes from the first of these that has it: a flag, a `DULY_*` environment variable, the TOML
file, the default. Fields state unit, default and range; the unit is also the end of the name.
A wrong value stops the start with a `SettingsError`, since a node that runs on a guess is worse.
"""

import difflib
import math
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from duly.nodes.setting_values import (
    READERS,
    Region,
    Role,
    Token,
    is_loopback,
    redact_region,
    redact_token,
    redact_url,
    redact_webhook,
    shown,
)

__all__ = ["Region", "Role", "Settings", "SettingsError", "Token", "load"]

_PREFIX: Final = "DULY_"
# Variables that other parts of Duly read, some of them close to a setting's name.
_OTHER_VARIABLES: Final = frozenset(
    f"{_PREFIX}{name}"
    for name in ("SERVER_USER", "POSTGRES_BIN", "VALKEY_BIN", "HOME", "URL", "TOKEN")
)


class SettingsError(Exception):
    """A setting is wrong or unknown; the text says which, from where, its value, what is allowed."""

    def __init__(self, setting: str, source: str, value: object, allowed: str) -> None:
        super().__init__(f"{setting} = {value!r} (from {source}): {allowed}")
        self.setting = setting
        self.source = source
        self.value = value
        self.allowed = allowed


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a node. Made by `load`, which checks it; printing hides the secrets."""

    database_url: str | None = None
    """PostgreSQL: `postgresql://user:password@host:port/database` (or `postgres://`); several hosts,
    separated by commas, are asked for the one that takes writes."""
    database_urls: tuple[str, ...] = ()
    """In the place of `database_url`: the databases that tasks are divided over, 1 to 64, in an order that
    stays; the first also keeps what is not of a task."""
    redis_url: str | None = None
    """Redis or Valkey: `redis://`, `rediss://` (TLS), `unix://` or `redis+sentinel://`."""
    lease_redis_urls: tuple[str, ...] = ()
    """The lease servers, 1, 3 or 5 different servers; none (default) means the one of `redis_url`."""
    host: str = "127.0.0.1"
    """Address the API binds to; without `tokens` only a loopback address."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    """Port of the API, 0 to 65535; 0 takes any free one."""
    tokens: tuple[Token, ...] = ()
    """Who may use the API: `name:role:sha256hex` or `name:role:sha256hex:expiry`, comma-separated;
    role read, payload-view, submit or admin."""
    token_rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """Requests a second that each token may send to this node, 0 to a million; 0 is no limit."""
    token_burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    """Requests that a token may send at once under `token_rate`, 1 to a million."""
    tls_cert: str | None = None
    """File with the API's certificate (PEM, with those that signed it); with it the API is HTTPS."""
    tls_key: str | None = None
    """File with the key of `tls_cert` (PEM, without a password)."""
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 900
    """Most connections to the API at a time, 1 to a million; a thousand open files are usual."""
    request_timeout_s: Annotated[float, Meta(ge=1, le=600)] = 60.0
    """Longest that a request may take to arrive whole, seconds, 1 to 600."""
    alert_webhook_url: str | None = None
    """URL (http or https) that is told of alerts: watched schedules that are silent, or gave up."""
    region: str | None = None
    """Name of this cluster's own region: 1 to 50 of `A-Z a-z 0-9 _ . -`; none (default): it has none."""
    regions: tuple[Region, ...] = ()
    """The other regions: `name=URL` of each one's API, the token as the URL's password, comma-separated."""
    node_name: str = msgspec.field(default_factory=socket.gethostname)
    """What people call this node: 1 to 100 of `A-Z a-z 0-9 _ . : -`; default the host's name."""
    lease_ttl_s: Annotated[float, Meta(ge=1, le=60)] = 4.0
    """Life of a slot's lease, seconds, 1 to 60: how long a killed node's tasks wait, about."""
    lease_renew_s: Annotated[float, Meta(ge=0.05, le=15)] = 1.0
    """Seconds between renewals, 0.05 to 15, and at most a quarter of `lease_ttl_s`."""
    horizon_s: Annotated[float, Meta(ge=5, le=3_600)] = 120.0
    """How far ahead the wheel holds tasks, seconds, 5 to 3600."""
    wheel_cap: Annotated[int, Meta(ge=1, le=10_000_000)] = 200_000
    """Most tasks in the wheel, 1 to 10 million (about 200 bytes each); the rest wait in the store."""
    sweep_every_s: Annotated[float, Meta(ge=0.05, le=10)] = 0.5
    """Seconds between sweeps for due tasks that no wake told of, 0.05 to 10."""
    claim_ahead_s: Annotated[float, Meta(ge=0, le=0.4)] = 0.04
    """Longest time before its due time at which a task is claimed, seconds, 0 to 0.4; it is published at its due time."""
    dispatch_grace_s: Annotated[float, Meta(ge=1, le=600)] = 10.0
    """From claim to stream, seconds, 1 to 600; a claimed task missing longer is put there again."""
    window_floor: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Least undelivered tasks a queue's stream may hold, 1 to 100000; more with more workers."""
    payload_limit_bytes: Annotated[int, Meta(ge=1_024, le=67_108_864)] = 262_144
    """Largest payload, bytes as JSON, 1 KiB to 64 MiB, default 256 KiB."""
    batch_limit: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """Most tasks in one batch submission, 1 to 100000."""
    idempotency_ttl_s: Annotated[float, Meta(ge=1, le=2_592_000)] = 86_400.0
    """How long an idempotency key is remembered, seconds, 1 to 30 days, default 24 h."""
    retention_s: Annotated[float, Meta(ge=60, le=315_360_000)] = 604_800.0
    """How long runs and finished tasks are kept, seconds, 60 to ten years, default 7 days."""
    archive_before_drop: bool = False
    """Whether days of tasks and runs are dropped only once `duly archive export` has written them."""
    db_pool_size: Annotated[int, Meta(ge=1, le=200)] = 8
    """Most PostgreSQL connections of the API, 1 to 200."""
    db_core_pool_size: Annotated[int, Meta(ge=1, le=200)] = 8
    """Most PostgreSQL connections of the firing path, 1 to 200: the API cannot starve it."""
    db_statement_timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Longest PostgreSQL statement, seconds, 0.1 to 300."""
    redis_timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Longest wait for Redis to connect or answer, seconds, 0.1 to 300."""
    stop_grace_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    """How long a stop waits for what is under way, seconds, 0 to 600."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log line written."""
    log_format: Literal["text", "json"] = "text"
    """One line for people, or one JSON object a line."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The databases: those of `database_urls`, or the one of `database_url`."""
        return self.database_urls or ((self.database_url,) if self.database_url else ())

    def redacted(self) -> dict[str, object]:
        """All settings by name, to be printed: no passwords, and of a token its name and role."""
        return msgspec.structs.asdict(self) | {
            "database_url": self.database_url and redact_url(self.database_url),
            "database_urls": [redact_url(url) for url in self.database_urls],
            "redis_url": self.redis_url and redact_url(self.redis_url),
            "lease_redis_urls": [redact_url(url) for url in self.lease_redis_urls],
            "alert_webhook_url": self.alert_webhook_url and redact_webhook(self.alert_webhook_url),
            "tokens": [redact_token(token) for token in self.tokens],
            "regions": [redact_region(region) for region in self.regions],
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.redacted().items())
        return f"Settings({values})"


def load(flags: Mapping[str, str], environ: Mapping[str, str], config: Path | None) -> Settings:
    """Settings from flags (by setting name), the environment and a TOML file, in this order.

    An empty environment variable counts as not set. Raises `SettingsError` for a wrong or unknown
    setting, an unreadable file, and a `DULY_*` variable that looks like a misspelt setting.
    """
    _check_variables(environ)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in (_read_file(config) if config else {}).items():
        values[name], sources[name] = _read(name, value, str(config)), str(config)
    for name in Settings.__struct_fields__:
        variable = _PREFIX + name.upper()
        if environ.get(variable):
            values[name] = _read(name, environ[variable], variable, as_text=True)
            sources[name] = variable
    for name, text in flags.items():
        flag = "--" + name.replace("_", "-")
        values[name], sources[name] = _read(name, text, flag, as_text=True), flag
    settings = Settings(**values)
    _check_together(settings, sources)
    return settings


def _read_file(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # wrong TOML and wrong UTF-8 are ValueErrors
        raise SettingsError(
            "config", "--config", str(config), f"cannot be read: {error}"
        ) from error


def _check_variables(environ: Mapping[str, str]) -> None:
    """Other programs may have `DULY_` variables of their own; only a likely slip is an error."""
    for variable in sorted(environ):
        name = variable.removeprefix(_PREFIX)
        if (
            not variable.startswith(_PREFIX)
            or name.startswith(("TEST_", "HTTP_"))  # the tests', the worker's for HTTP targets
            or variable in _OTHER_VARIABLES
            or name in map(str.upper, Settings.__struct_fields__)
        ):
            continue
        if close := _closest(name, 0.75):
            hint = f"no such variable; did you mean {_PREFIX}{close.upper()}?"
            # Its value is not shown: it may be a secret.
            raise SettingsError(variable, "the environment", "***", hint)


def _closest(name: str, likeness: float) -> str | None:
    fields = Settings.__struct_fields__
    close = difflib.get_close_matches(name.lower(), fields, n=1, cutoff=likeness)
    return close[0] if close else None


def _read(name: str, value: object, source: str, *, as_text: bool = False) -> object:
    """One value, checked. A text is turned into the type; a TOML file has it in the type."""
    if name not in Settings.__struct_fields__:
        close = _closest(name, 0.6)
        hint = f"no such setting; did you mean {close}?" if close else "no such setting"
        raise SettingsError(name, source, "***", hint)
    if isinstance(value, str):
        value = value.strip()
    if name in READERS:
        try:
            return READERS[name](value)
        except ValueError as error:
            raise SettingsError(name, source, shown(name, value), f"must be {error}") from None
    try:
        read = msgspec.convert(value, _TYPES[name], strict=not as_text)
        fits = not isinstance(read, float) or math.isfinite(read)
    except msgspec.ValidationError:
        fits = False
    if not fits:
        raise SettingsError(name, source, value, f"must be {_allowed(_TYPES[name])}")
    return read


def _allowed(kind: Any) -> str:
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    base, meta = get_args(kind)
    return f"{'a whole number' if base is int else 'a number'} from {meta.ge} to {meta.le}"


def _check_together(settings: Settings, sources: Mapping[str, str]) -> None:
    def refuse(name: str, allowed: str) -> SettingsError:
        return SettingsError(
            name, sources.get(name, "the default"), shown(name, getattr(settings, name)), allowed
        )

    # Three renewals may fail before a lease runs out.
    if settings.lease_renew_s > settings.lease_ttl_s / 4:
        most_s = settings.lease_ttl_s / 4
        limit = f"must be at most {most_s:g}, a quarter of lease_ttl_s = {settings.lease_ttl_s:g}"
        raise refuse("lease_renew_s", limit)
    for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, name) and not getattr(settings, other):
            raise refuse(name, f"must come with {other}")
    if settings.regions and settings.region is None:
        raise refuse("regions", "must come with region, the name of this cluster's own")
    if settings.regions and len(settings.stores) > 1:
        raise refuse("regions", "cannot be had where database_urls names several stores")
    if settings.database_urls and settings.database_url not in (None, settings.database_urls[0]):
        raise refuse("database_urls", "must begin with database_url, or come in its place")
    if not settings.tokens and not is_loopback(settings.host):
        raise refuse("host", "must be 127.0.0.1, ::1 or localhost as long as tokens is not set")


_TYPES: Final = get_type_hints(Settings, include_extras=True)
