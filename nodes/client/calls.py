"""What all calls of the client share: the session, and how a task is read from an answer."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote
from uuid import UUID

from duly.nodes.client import sealing, waiting
from duly.nodes.client.models import Task, may_wait
from duly.nodes.client.transport import Transport
from duly.nodes.codec import Codec
from duly.nodes.exact_json import ExactDecoder

_TASK: Final[ExactDecoder[Task]] = ExactDecoder(Task)


class Calls:
    """A session with a node, for one event loop."""

    def __init__(
        self, base_url: str, token: str | None, timeout_s: float, codec: Codec | None
    ) -> None:
        """See `Client`."""
        self._transport = Transport(base_url, token, timeout_s)
        self._codec = codec

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await self._transport.close()

    async def get(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Return a task, finished or not; raises NotFound."""
        return self._task(await self._send("GET", path_of(id), repeatable=True))

    async def wait(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        timeout_s: float | None = None,
    ) -> Task:
        """Return a task once it is completed, failed or cancelled; a periodic one once its schedule is over.

        Asks 20 times a second at first, later every 2 s; a node that does not answer is waited for, up to a
        minute. Raises NotFound, or TimeoutError after `timeout_s` (None: never).
        """
        try:
            return await waiting.until_over(lambda: self.get(id), timeout_s)
        except TimeoutError:
            raise TimeoutError(f"task {id} was not over after {timeout_s} s") from None

    def _task(self, answer: bytes) -> Task:
        return self._may_wait(_TASK.decode(answer))

    def _may_wait(self, task: Task) -> Task:
        shown = task if self._codec is None else sealing.task(self._codec, task)
        return may_wait(shown, self.wait)

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> bytes:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return await self._transport.send(
            method,
            path,
            body=body,
            query=given,
            headers=headers,
            repeatable=repeatable or method == "GET",
        )


def path_of(task_id: UUID | str, action: str | None = None) -> str:
    """Where the API has a task, or what can be done with it."""
    path = f"/v1/tasks/{quote(str(task_id), safe='')}"
    return path if action is None else f"{path}/{action}"
