"""One HTTP session with a node (or a load balancer before several).

What may be repeated. A request that surely did not arrive (no connection, 429) is always tried
again. One whose fate is unknown (answer lost, 502 to 504) only if sending it twice is safe: reading is,
and so is a submission under an idempotency key; a cancel or change is not.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from duly.nodes.client import errors

ATTEMPTS: Final = 3
"""Times that one request is sent at most."""

_IN_DOUBT: Final = frozenset({502, 503, 504})
"""Answers after which the request may have taken effect or not."""

FIRST_WAIT_S: Final = 0.2
"""Wait before the second attempt; it doubles, ± 50 %."""

RETRY_AFTER_MAX_S: Final = 30.0
"""A node that asks for more patience than this is believed, and the error raised at once."""


class Transport:
    """Sends requests over kept-alive connections; opens the session at the first request."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float) -> None:
        """`timeout_s` bounds one attempt. Raises ValueError for a URL that is not HTTP(S)."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"base_url is an http:// or https:// URL, not {base_url!r}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is more than 0 seconds, not {timeout_s}")
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the connections; safe to call twice. The transport cannot be used after it."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool,
    ) -> bytes:
        """Return the body of a 2xx answer.

        Raises ApiError for any other answer, Unreachable if there is none.
        """
        attempt = 1
        while True:
            try:
                return await self._once(method, path, body, query, headers)
            except errors.ApiError as error:
                again = error.status == 429 or (error.status in _IN_DOUBT and repeatable)
                patience_s = error.retry_after_s or 0.0
                if not again or attempt >= ATTEMPTS or patience_s > RETRY_AFTER_MAX_S:
                    raise
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                patience_s = 0.0
                if not (unsent or repeatable) or attempt >= ATTEMPTS:
                    text = str(error) or type(error).__name__
                    raise errors.Unreachable(f"{method} {path}: {text}") from error
            backoff_s = FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
            await asyncio.sleep(max(patience_s, backoff_s))
            attempt += 1

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        session = self._open()
        content: dict[str, str] = {"Content-Type": "application/json"} if body is not None else {}
        async with session.request(
            method,
            self._base_url + path,
            data=body,
            params=query,
            headers={**content, **(headers or {})},
            allow_redirects=False,
        ) as answer:
            data = await answer.read()
            if 200 <= answer.status < 300:
                return data
            raise errors.from_answer(answer.status, data, _retry_after_s(answer.headers))

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        return self._session


def _retry_after_s(headers: Mapping[str, Any]) -> float | None:
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):  # absent, or a date: the usual back-off serves as well
        return None
