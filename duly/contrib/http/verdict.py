"""What an answer means for the task: its result, or why it failed, and when to try again."""

import email.utils
import re
from http import HTTPStatus
from typing import Any, Final

from duly.contrib.http.connection import Answer
from duly.contrib.http.errors import TryAgainError, UnexpectedStatusError
from duly.contrib.http.payload import Request

_RETRIED: Final = frozenset({408, 425, 429})
_KEPT_HEADERS: Final = (
    "Content-Type", "Content-Length", "Content-Encoding", "Date", "ETag", "Last-Modified",
    "Location", "Retry-After", "X-Request-Id",
)  # fmt: skip
_HEADER_CHARS_MAX: Final = 500
_SAID_CHARS_MAX: Final = 1_000


def judge(
    request: Request, answer: Answer, redirects: int, *, now_s: float, retry_after_max_s: float
) -> dict[str, Any]:
    """The task's result.

    `now_s`: the time, seconds since the epoch. Raises TryAgainError for 408, 425, 429 and 5xx, with
    the wait that Retry-After asks for; UnexpectedStatusError for what else is not expected.
    """
    text = _text(answer)
    if request.is_expected(answer.status):
        return {
            "status": answer.status,
            "headers": _kept(answer),
            "body": text,
            "truncated": answer.truncated,
            "redirects": redirects,
        }
    reason = _reason(answer.status, text)
    if answer.status in _RETRIED or answer.status >= 500:
        wait_s = retry_after(answer.headers.get("Retry-After", ""), now_s, retry_after_max_s)
        raise TryAgainError(wait_s, reason)
    raise UnexpectedStatusError(reason)


def retry_after(value: str, now_s: float, most_s: float) -> float | None:
    """Seconds that `Retry-After` (RFC 9110, section 10.2.3) asks to wait, at most `most_s`.

    None if it says nothing, or less than a second: then the task's own back-off holds, which no
    server can switch off.
    """
    if re.fullmatch(r"[0-9]{1,18}", value):
        wait_s = float(value)
    else:
        try:
            wait_s = email.utils.parsedate_to_datetime(value).timestamp() - now_s
        except (ValueError, TypeError, OverflowError):
            return None
    return None if wait_s < 1 else min(wait_s, most_s)


def _text(answer: Answer) -> str | None:
    """The begin of the body as text that JSONB can hold; None if it is packed."""
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        return None
    body = answer.body
    if answer.truncated:  # not the half of a character at the end
        end = next((at for at in range(1, min(4, len(body) + 1)) if body[-at] & 0xC0 == 0xC0), None)
        if end is not None and _length(body[-end]) > end:
            body = body[:-end]
    return body.decode(errors="replace").replace("\0", "\ufffd")


def _length(first: int) -> int:
    """How many bytes a character has that begins with this one."""
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _kept(answer: Answer) -> dict[str, str]:
    return {
        name.lower(): answer.headers[name][:_HEADER_CHARS_MAX].encode("utf-8", "replace").decode()
        for name in _KEPT_HEADERS
        if name in answer.headers
    }


def _reason(status: int, text: str | None) -> str:
    try:
        said = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = str(status)
    if 300 <= status < 400:
        said += ", a redirect that is not followed"
    return f"{said}: {text[:_SAID_CHARS_MAX]}" if text else said
