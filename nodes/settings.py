"""A node's settings: one frozen value, read once at start and handed to whoever needs it.

Each comes from the first of these that has it: a flag, a `DULY_*` environment variable, the TOML
file, the default. Types state unit and range; the unit is also the end of the name, where it is of time or size.
docs/settings.md and the help of flags are made from them and the docstrings. A wrong value stops
the start with a `SettingsError`, since a node that runs on a guess is worse.
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
from duly.storage.cluster_url import is_cluster

__all__ = ["OTHER_VARIABLES", "Region", "Role", "Settings", "SettingsError", "Token", "load"]

_PREFIX: Final = "DULY_"
OTHER_VARIABLES: Final = {
    "DULY_URL": (
        "`duly submit`, `get`, …",
        "URL of a node's API (default `http://127.0.0.1:8080`)",
    ),
    "DULY_TOKEN": ("the same", "bearer token"),
    "DULY_HOME": ("`duly up`, `duly demo`", "default data folder"),
    "DULY_SERVER_USER": ("`duly up`, `duly demo` as root", "user that the embedded servers run as"),
    "DULY_POSTGRES_BIN": ("`duly up`, `duly demo`", "another program than that of the package"),
    "DULY_VALKEY_BIN": ("`duly up`, `duly demo`", "another program than that of the package"),
}
"""Variables that other parts of Duly read, some of them close to a setting's name: by whom, and what each is."""


def _number(least: float, most: float, unit: str) -> Meta:
    """The range of a number whose name does not end in its unit."""
    return Meta(ge=least, le=most, extra={"unit": unit})


def _text(allowed: str, unit: str = "", default: str = "none") -> Meta:
    """What a text may be, as its reader has it; `default` is told where the field has none to show."""
    return Meta(description=allowed, extra={"unit": unit, "default": default})


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

    database_url: Annotated[
        str | None,
        _text(
            "`postgresql://user:password@host:port/database`, or `postgres://`",
            unit="URL",
            default="none; needed, or `database_urls`",
        ),
    ] = None
    """PostgreSQL; several hosts, separated by commas, are asked for the one that takes writes."""
    database_urls: Annotated[
        tuple[str, ...],
        _text("1 to 64 different databases", unit="URLs", default="the one of `database_url`"),
    ] = ()
    """In the place of `database_url`: the databases that tasks are divided over, in an order that
    stays; the first also keeps what is not of a task."""
    redis_url: Annotated[
        str | None,
        _text(
            "`redis://`, `rediss://` (TLS), `unix://`, `redis+sentinel://`, `redis+cluster://`, "
            "`rediss+cluster://` (TLS)",
            unit="URL",
            default="none; needed",
        ),
    ] = None
    """Redis or Valkey."""
    lease_redis_urls: Annotated[
        tuple[str, ...],
        _text(
            "1, 3 or 5 different servers; needed with a Redis Cluster",
            unit="URLs",
            default="the one of `redis_url`",
        ),
    ] = ()
    """The lease servers."""
    host: Annotated[str, _text("without `tokens` only loopback", unit="address")] = "127.0.0.1"
    """Address that the API binds to."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    """Port of the API; 0 takes any free one."""
    tokens: Annotated[
        tuple[Token, ...],
        _text(
            "`name:role:sha256hex` or `name:role:sha256hex:expiry`; role `read`, "
            "`payload-view`, `submit` or `admin`"
        ),
    ] = ()
    """Who may use the API."""
    token_rate: Annotated[float, _number(0, 1_000_000, "requests/s")] = 0.0
    """Requests a second that each token may send to this node; 0 is no limit."""
    token_burst: Annotated[int, _number(1, 1_000_000, "requests")] = 100
    """Requests that a token may send at once under `token_rate`."""
    tls_cert: Annotated[
        str | None, _text("PEM, with those that signed it; with `tls_key`", unit="file")
    ] = None
    """The API's certificate; with it the API is HTTPS."""
    tls_key: Annotated[
        str | None, _text("PEM, without a password; with `tls_cert`", unit="file")
    ] = None
    """The key of `tls_cert`."""
    max_connections: Annotated[int, _number(1, 1_000_000, "connections")] = 900
    """Most connections to the API at a time; a thousand open files are usual."""
    request_timeout_s: Annotated[float, Meta(ge=1, le=600)] = 60.0
    """Longest that a request may take to arrive whole."""
    alert_webhook_url: Annotated[str | None, _text("`http://` or `https://`", unit="URL")] = None
    """Who is told of alerts: watched schedules that are silent, or gave up."""
    region: Annotated[str | None, _text("1 to 50 of `A-Z a-z 0-9 _ . -`")] = None
    """Name of this cluster's own region."""
    regions: Annotated[
        tuple[Region, ...], _text("`name=URL`, the token as the URL's password; with `region`")
    ] = ()
    """The other regions, with the URL of each one's API."""
    node_name: Annotated[
        str, _text("1 to 100 of `A-Z a-z 0-9 _ . : -`", default="the host's name")
    ] = msgspec.field(default_factory=socket.gethostname)
    """What people call this node."""
    lease_ttl_s: Annotated[float, Meta(ge=1, le=60)] = 4.0
    """Life of a slot's lease: how long a killed node's tasks wait, about."""
    lease_renew_s: Annotated[float, Meta(ge=0.05, le=15)] = 1.0
    """Time between renewals; at most a quarter of `lease_ttl_s`."""
    horizon_s: Annotated[float, Meta(ge=5, le=3_600)] = 120.0
    """How far ahead the wheel holds tasks."""
    wheel_cap: Annotated[int, _number(1, 10_000_000, "tasks")] = 200_000
    """Most tasks in the wheel (about 200 bytes each); the rest wait in the store."""
    sweep_every_s: Annotated[float, Meta(ge=0.05, le=10)] = 0.5
    """Time between sweeps for due tasks that no wake told of."""
    claim_ahead_s: Annotated[float, Meta(ge=0, le=0.4)] = 0.04
    """Longest time before its due time at which a task is claimed; it is published at its due time."""
    dispatch_grace_s: Annotated[float, Meta(ge=1, le=600)] = 10.0
    """From claim to stream; a claimed task missing longer is put there again."""
    window_floor: Annotated[int, _number(1, 100_000, "tasks")] = 100
    """Least undelivered tasks that a queue's stream may hold; more with more workers."""
    payload_limit_bytes: Annotated[int, Meta(ge=1_024, le=67_108_864)] = 262_144
    """Largest payload, as JSON."""
    batch_limit: Annotated[int, _number(1, 100_000, "tasks")] = 10_000
    """Most tasks in one batch submission."""
    idempotency_ttl_s: Annotated[float, Meta(ge=1, le=2_592_000)] = 86_400.0
    """How long an idempotency key is remembered."""
    retention_s: Annotated[float, Meta(ge=60, le=315_360_000)] = 604_800.0
    """How long runs and finished tasks are kept."""
    archive_before_drop: bool = False
    """Whether days of tasks and runs are dropped only once `duly archive export` has written them."""
    db_pool_size: Annotated[int, _number(1, 200, "connections")] = 8
    """Most PostgreSQL connections of the API."""
    db_core_pool_size: Annotated[int, _number(1, 200, "connections")] = 8
    """Most PostgreSQL connections of the firing path: the API cannot starve it."""
    db_statement_timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Longest PostgreSQL statement."""
    redis_timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Longest wait for Redis to connect or answer."""
    stop_grace_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    """How long a stop waits for what is under way."""
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
            or variable in OTHER_VARIABLES
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
    if is_cluster(settings.redis_url) and not settings.lease_redis_urls:
        raise refuse(
            "lease_redis_urls", "must name the lease servers where redis_url is a Redis Cluster"
        )
    if not settings.tokens and not is_loopback(settings.host):
        raise refuse("host", "must be 127.0.0.1, ::1 or localhost as long as tokens is not set")


_TYPES: Final = get_type_hints(Settings, include_extras=True)
