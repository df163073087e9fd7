"""Confirmed starts: a task with `on_lost = fail` runs only after a node has granted its start.

PostgreSQL grants each token one start. The question carries a `start_id` made once per attempt, so
that it can be repeated when the answer was lost: the same id is granted again, another is refused.
"""

import asyncio
import enum
import logging
import time
import uuid
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec

from duly.actors.patience import Patience
from duly.storage.conveyor import Entry

log = logging.getLogger("duly.worker")

REQUEST_TIMEOUT_S: Final = 10.0
"""Longest wait for one answer."""

ASKING_S: Final = 30.0
"""How long to ask on without a clear answer: longer would block a slot for nothing. The attempt's
own timeout may end the asking earlier."""


class Verdict(enum.Enum):
    """What a node says to a start."""

    GRANTED = enum.auto()
    REFUSED = enum.auto()
    """Superseded, cancelled, or started by another worker: drop it."""
    UNANSWERED = enum.auto()
    """No node gave a clear answer, or this worker knows none: give it back. If the start was
    granted after all, that token ends unused."""


class Starts:
    """Asks the API for starts; used as an async context manager."""

    def __init__(self, api: str | None, token: str | None, worker_id: str) -> None:
        """`api` is the node's base URL, `token` its bearer token; both may be None."""
        self._api = api
        self._token = token
        self._worker_id = worker_id
        self._session: aiohttp.ClientSession | None = None
        self._said = False
        self._patience = Patience("asking a node to confirm a start", log)

    async def __aenter__(self) -> Self:
        if self._api is not None:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
            self._session = aiohttp.ClientSession(
                headers={**headers, "Content-Type": "application/json"}, timeout=timeout
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def confirm(self, entry: Entry) -> Verdict:
        """Ask until there is a clear answer, for up to `ASKING_S`, always under one start_id."""
        if self._session is None:
            if not self._said:
                self._said = True
                log.warning(
                    "a task with on_lost = fail needs its start confirmed, and this worker has no "
                    "`api` to ask: such tasks are given back"
                )
            return Verdict.UNANSWERED
        url = f"{self._api}/v1/tasks/{entry.id}/start"
        question = {"token": entry.token, "start_id": str(uuid.uuid4()), "worker": self._worker_id}
        body = msgspec.json.encode(question)
        give_up_at_s = time.monotonic() + ASKING_S
        while time.monotonic() < give_up_at_s:
            try:
                async with self._session.post(url, data=body) as answer:
                    status = answer.status
                    text = (await answer.text())[:200] if status not in (200, 409) else ""
            except (aiohttp.ClientError, TimeoutError) as error:
                wait_s = self._patience.failed(error)
            else:
                if status in (200, 409):
                    self._patience.worked()
                    return Verdict.GRANTED if status == 200 else Verdict.REFUSED
                wait_s = self._patience.failed(RuntimeError(f"status {status}: {text}"))
            await asyncio.sleep(wait_s)
        return Verdict.UNANSWERED
