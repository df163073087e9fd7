"""A one-shot answer that travels inside a message."""

from typing import Generic, TypeVar

import anyio

R = TypeVar("R")


class Reply(Generic[R]):
    """Answered once, by `set` or `fail`; later answers, and an asker who left, do no harm."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._value: R
        self._error: Exception | None = None

    @property
    def answered(self) -> bool:
        return self._done.is_set()

    def set(self, value: R) -> None:
        """Answer with a value."""
        if not self.answered:
            self._value = value
            self._done.set()

    def fail(self, error: Exception) -> None:
        """Answer with an error, which `wait` raises."""
        if not self.answered:
            self._error = error
            self._done.set()

    async def wait(self, timeout_s: float) -> R:
        """The answer. Raises TimeoutError after `timeout_s` seconds: the actor may have crashed."""
        with anyio.fail_after(timeout_s):
            await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value
