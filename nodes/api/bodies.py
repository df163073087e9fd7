"""Reading and decoding request bodies: bounded in size and time, each error named."""

import asyncio
import re
from typing import TypeVar

import msgspec
from aiohttp import web

from duly.nodes.api.json_guard import DEPTH_MAX, deep_path, surrogate_path
from duly.nodes.api.problems import FieldError, Problem, invalid

T = TypeVar("T")

ENVELOPE_BYTES = 64 * 1024
"""What a body may hold beside its payload."""

READ_S = 30.0
"""A body that has not arrived by then is refused (408), however slowly it drips."""

_AT = re.compile(r"^(.*?)(?: - at (?:`key` in )?`\$?\.?(.*)`)?$", re.DOTALL)
_PATTERN = "Expected `str` matching regex "  # all of ours allow the same characters
_DOTS = "(?:/|$)"  # of that of queues
_NAMED = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL)


async def read(request: web.Request, limit_bytes: int) -> bytes:
    """The whole body. Raises `Problem` 408, 413, 415."""
    stated = request.headers.get("Content-Type")
    if stated != "application/json" and (
        stated is None or request.content_type != "application/json"
    ):
        raise Problem(415, "Unsupported media type", "send Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Problem(415, "Unsupported media type", "compressed bodies are not accepted")
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    if request.content.is_eof():  # as with most: no need to wait for more
        body = request.content.read_nowait()
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes)
        return body
    chunks = bytearray()
    try:
        async with asyncio.timeout(READ_S):
            async for chunk in request.content.iter_any():
                chunks += chunk
                if len(chunks) > limit_bytes:
                    raise _too_large(limit_bytes)
    except TimeoutError:
        raise Problem(408, "Request timeout", f"no whole body within {READ_S:g} s") from None
    return bytes(chunks)


def _too_large(limit_bytes: int) -> Problem:
    return Problem(413, "Too large", f"the body is larger than {limit_bytes} bytes")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body. Raises `Problem`: 400 if it is not JSON, 422 if a field is wrong."""
    try:
        if not body.isascii():
            body.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, "Not JSON", f"the body is not UTF-8: byte {error.start}") from None
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(field_error(error)) from None
    except msgspec.DecodeError as error:
        path = surrogate_path(body)
        if path is not None:
            message = "holds a lone surrogate, which is not a character"
            raise invalid(FieldError(path, message)) from None
        raise Problem(400, "Not JSON", str(error)) from None
    except RecursionError:
        message = f"is nested deeper than {DEPTH_MAX}"
        raise invalid(FieldError(deep_path(body) or "body", message)) from None


def field_error(error: msgspec.ValidationError) -> FieldError:
    """What msgspec says, as a field and a message."""
    match = _AT.match(str(error))
    assert match is not None
    message, path = match[1], match[2] or ""
    if named := _NAMED.match(message):
        what = "is required" if named[1] == "missing required" else "is not a known field"
        return FieldError(f"{path}.{named[2]}" if path else named[2], what)
    if message.startswith(_PATTERN):
        dots = ", or a part that is . or .." if _DOTS in message else ""
        message = f"has characters other than A-Z a-z 0-9 _ . : / -{dots}"
    return FieldError(path or "body", message)
