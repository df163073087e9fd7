"""What a task of type `http` carries: one request, checked whole before anything is sent."""

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from duly.contrib.http.places import Place
from duly.nodes import exact_json

HEADERS_MAX: Final = 64
"""Most headers of one request."""

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110, "token"
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]{0,8190}[\x21-\x7e])?)?")

_OURS: Final = frozenset(
    # What frames the message or names its receiver, and what this worker says about the attempt.
    {
        "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive",
        "proxy-authorization", "proxy-connection", "te", "traceparent", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip

_BODIES: Final = ("body", "json", "body_base64")


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The payload."""

    url: str
    """`http://` or `https://`, without a user, at most 8,000 characters."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "POST"
    headers: dict[str, str] = {}
    """At most 64; none of those that frame the message, and none that this worker sends itself."""
    body: str | None = None
    """The body as text, sent in UTF-8."""
    json: Any | UnsetType = UNSET
    """The body as any JSON value, `null` too; its numbers are sent as they came."""
    body_base64: bytes | None = None
    """The body as bytes, in base64."""
    deadline: Annotated[float, Meta(ge=0.1, le=3_600)] = 30.0
    """Longest time for everything, from the look-up of the name to the answer, in seconds."""
    expect: Annotated[list[Annotated[int, Meta(ge=200, le=599)]], Meta(min_length=1)] | None = None
    """The statuses that are a success; None: 200 to 299."""
    redirects: Annotated[int, Meta(ge=0, le=10)] = 3
    """How many redirects are followed, each checked as the URL is."""

    def __post_init__(self) -> None:
        """Raises ValueError that names the field."""
        try:
            Place.of(self.url)
        except ValueError as error:
            raise ValueError(f"url: {error}") from None
        given = [name for name in _BODIES if getattr(self, name) not in (None, UNSET)]
        if self.json is None:
            given.append("json")
        if len(given) > 1:
            raise ValueError(f"{given[0]}, {given[1]}: only one of them can be the body")
        _check_headers(self.headers)

    @property
    def content(self) -> bytes | None:
        """The body as it is sent; None: there is none."""
        if self.json is not UNSET:
            return exact_json.encode(self.json)
        return self.body_base64 if self.body is None else self.body.encode()

    @property
    def content_type(self) -> str | None:
        """What the body is, unless the headers say so."""
        if self.json is not UNSET:
            return "application/json"
        if self.body is not None:
            return "text/plain; charset=utf-8"
        return None if self.body_base64 is None else "application/octet-stream"

    def is_expected(self, status: int) -> bool:
        """Whether this status is a success."""
        return 200 <= status < 300 if self.expect is None else status in self.expect


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"headers: {len(headers)} are more than {HEADERS_MAX}")
    seen = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _NAME.fullmatch(name):
            raise ValueError(f"headers: {name[:100]!r} is no name of a header")
        if lower in _OURS or lower.startswith("duly-"):
            raise ValueError(f"headers.{name}: this one is set by the worker itself")
        if lower in seen:
            raise ValueError(f"headers.{name}: it is there twice")
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"headers.{name}: a value has up to 8,192 printable ASCII characters, "
                "without spaces at its ends"
            )
        seen.add(lower)
