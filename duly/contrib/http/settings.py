"""The settings of the worker for HTTP targets: `DULY_HTTP_*` variables of the environment."""

import difflib
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any, Final

import msgspec

from duly.contrib.http.addresses import Network
from duly.contrib.http.places import HostPattern
from duly.nodes.settings import SettingsError
from duly.storage import keys

_PREFIX: Final = "DULY_HTTP_"

SECRET_CHARS_MIN: Final = 32
"""Shortest secret: whoever is sent a signature may try out secrets as long as they like."""

BODY_BYTES_MAX: Final = 32_768
"""Most that is kept of an answer; it fits a result however its characters have to be escaped."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting. Made by `load`, which checks it; printing hides the secrets."""

    queues: tuple[str, ...] = ("default",)
    """The queues that tasks are taken from, separated by commas. A queue of its own keeps the requests from workers
    that do not know the type."""
    concurrency: int = 50
    """Requests at a time, 1 to 10,000."""
    secrets: tuple[str, ...] = ()
    """What requests are signed with, separated by commas, each of 32 characters or more (`openssl rand -hex 32`);
    none: they are not signed."""
    allow_hosts: tuple[HostPattern, ...] = ()
    """The only hosts that are asked: `api.example.org`, `*.example.org` (what is below it), with `:443` only that port;
    separated by commas. Their addresses must be allowed too. None: every host with a public address."""
    allow_networks: tuple[Network, ...] = ()
    """Networks that are connected to although they are not public, such as `10.1.0.0/16,127.0.0.1/32`."""
    ca_file: str | None = None
    """File with certificates (PEM) that are trusted beside those of the system."""
    body_bytes: int = 4_096
    """How much of an answer is kept, bytes, 0 to 32,768."""
    deadline_max_s: float = 300.0
    """Longest deadline that a task may ask for, seconds, 0.1 to 3,600."""
    retry_after_max_s: float = 86_400.0
    """Longest wait that a server may ask for, seconds, 1 to 31,536,000 (a year)."""

    def __repr__(self) -> str:
        shown = msgspec.structs.asdict(self) | {"secrets": f"{len(self.secrets)} hidden"}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def load(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment; an empty variable counts as not set.

    Raises `SettingsError` for a wrong value, and for a `DULY_HTTP_*` variable that is none of
    these: a misspelt list of hosts must not mean every host.
    """
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or not environ[variable].strip():
            continue
        name = variable.removeprefix(_PREFIX).lower()
        if name not in _READERS:
            close = difflib.get_close_matches(name, _READERS, n=1, cutoff=0)[0]
            hint = f"no such variable; did you mean {_PREFIX}{close.upper()}?"
            raise SettingsError(variable, "the environment", "***", hint)
        try:
            values[name] = _READERS[name](environ[variable].strip())
        except ValueError as error:
            shown = "***" if name == "secrets" else environ[variable]
            raise SettingsError(variable, "the environment", shown, str(error)) from None
    return Settings(**values)


def _list(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise ValueError("must be a list separated by commas, without empty items")
    return items


def _queues(text: str) -> tuple[str, ...]:
    names = _list(text)
    if not all(re.fullmatch(keys.QUEUE_NAME, name) for name in names):
        raise ValueError(f"must be names of queues, {keys.QUEUE_NAME}")
    return names


def _secrets(text: str) -> tuple[str, ...]:
    secrets = _list(text)
    if min(map(len, secrets)) < SECRET_CHARS_MIN or len(set(secrets)) < len(secrets):
        raise ValueError(
            f"must be different secrets of {SECRET_CHARS_MIN} characters or more, such as "
            "`openssl rand -hex 32` prints"
        )
    return secrets


def _hosts(text: str) -> tuple[HostPattern, ...]:
    return tuple(HostPattern.of(item) for item in _list(text))


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ip_network(item) for item in _list(text))


def _number(kind: type, least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number: float = msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            number = float("nan")
        if not least <= number <= most:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"must be {what} from {least:g} to {most:g}")
        return number

    return read


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "queues": _queues,
    "concurrency": _number(int, 1, 10_000),
    "secrets": _secrets,
    "allow_hosts": _hosts,
    "allow_networks": _networks,
    "ca_file": str,
    "body_bytes": _number(int, 0, BODY_BYTES_MAX),
    "deadline_max_s": _number(float, 0.1, 3_600),
    "retry_after_max_s": _number(float, 1, 31_536_000),
}
