"""A one-shot answer that travels inside a message."""

import asyncio
from typing import Generic, TypeVar

R = TypeVar("R")


class ActorCrashedError(Exception):
    """The actor crashed while it handled the message: whether it did what was asked is unknown."""


class Reply(Generic[R]):
    """Answered once, by `set` or `fail`; later answers, and an asker who left, do no harm.

    A message carries it in a field called `reply`: so it is failed when the message is dropped.
    """

    # A plain future and a timer: events and scopes made of them cost several times as much.
    def __init__(self) -> None:
        self._answered = False
        self._value: R
        self._error: Exception | None = None
        self._asker: asyncio.Future[None] | None = None

    @property
    def answered(self) -> bool:
        """Whether `wait` would return, or raise what it was failed with, at once."""
        return self._answered

    def set(self, value: R) -> None:
        """Answer with a value."""
        if not self._answered:
            self._value = value
            self._answered = True
            self._wake()

    def fail(self, error: Exception) -> None:
        """Answer with an error, which `wait` raises."""
        if not self._answered:
            self._error = error
            self._answered = True
            self._wake()

    async def wait(self, timeout_s: float) -> R:
        """Return the answer; one asker at a time.

        Raises what the reply was failed with (`ActorCrashedError` and `MailboxClosedError` if the
        message was dropped), and TimeoutError when there is no answer after `timeout_s` seconds.
        """
        if not self._answered:
            loop = asyncio.get_running_loop()
            self._asker = loop.create_future()
            timer = loop.call_later(timeout_s, self._wake)
            try:
                await self._asker
            finally:
                timer.cancel()
                self._asker = None
        if not self._answered:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        return self._value

    def _wake(self) -> None:
        if self._asker is not None and not self._asker.done():
            self._asker.set_result(None)


def fail_reply(message: object, error: Exception) -> None:
    """Fail the reply that `message` carries, if it carries one."""
    reply = getattr(message, "reply", None)
    if isinstance(reply, Reply):
        reply.fail(error)
