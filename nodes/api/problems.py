"""Errors as application/problem+json (RFC 9457), with the fields that are wrong (422)."""

import math
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web


class FieldError(msgspec.Struct, frozen=True):
    """One field that is wrong, by its path (`backoff.delay`, `tasks[3].type`)."""

    field: str
    message: str


class Problem(Exception):  # noqa: N818 - the name of RFC 9457
    """Raised by handlers; the middleware turns it into the answer."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def response(self) -> web.Response:
        """The answer to send."""
        body: dict[str, object] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        body.update(self.more)
        return web.Response(
            status=self.status,
            body=msgspec.json.encode(body),
            content_type="application/problem+json",
            headers=self.headers,
        )


def invalid(*errors: FieldError) -> Problem:
    """422: these fields are wrong."""
    detail = "; ".join(f"{e.field}: {e.message}" for e in errors[:3])
    return Problem(422, "Invalid", detail, errors=errors)


def not_found(what: str) -> Problem:
    return Problem(404, "Not found", f"there is no {what}")


def conflict(detail: str, **state: object) -> Problem:
    """409: the state does not allow it; `state` (the task as it is) goes into the answer."""
    return Problem(409, "Conflict", detail, more=state)


def unavailable(detail: str) -> Problem:
    return Problem(503, "Unavailable", detail, headers={"Retry-After": "1"})


def too_many(what: str, wait_s: float) -> Problem:
    """Too many of `what`, such as "requests with this token": not again for so long."""
    headers = {"Retry-After": str(math.ceil(wait_s))}
    return Problem(429, "Too many requests", f"too many {what}", headers=headers)
