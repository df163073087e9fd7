"""A one-shot answer that travels inside a message."""

from typing import Generic, TypeVar

import anyio

R = TypeVar("R")


class ActorCrashedError(Exception):
    """The actor crashed while it handled the message: whether it did what was asked is unknown."""


class Reply(Generic[R]):
    """Answered once, by `set` or `fail`; later answers, and an asker who left, do no harm.

    A message carries it in a field called `reply`: so it is failed when the message is dropped.
    """

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._value: R
        self._error: Exception | None = None

    @property
    def answered(self) -> bool:
        """Whether `wait` would return, or raise what it was failed with, at once."""
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
        """Return the answer.

        Raises what the reply was failed with (`ActorCrashedError` and `MailboxClosedError` if the
        message was dropped), and TimeoutError when there is no answer after `timeout_s` seconds.
        """
        with anyio.move_on_after(timeout_s):
            await self._done.wait()
        if not self.answered:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        return self._value


def fail_reply(message: object, error: Exception) -> None:
    """Fail the reply that `message` carries, if it carries one."""
    reply = getattr(message, "reply", None)
    if isinstance(reply, Reply):
        reply.fail(error)
