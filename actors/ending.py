"""Ends attempts that nobody will report: by way of the recorder, which compares the tokens."""

from duly.actors.context import Context
from duly.actors.messages import Outcomes
from duly.actors.runtime import Reply
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError

_ANSWER_S = 30.0


async def end(context: Context, ended: list[Ended]) -> int:
    """Have these outcomes recorded; answers how many counted.

    Raises `StoreUnavailableError` if they cannot be recorded now.
    """
    if not ended:
        return 0
    reply: Reply[list[bool]] = Reply()
    await context.boxes.recorder.send(Outcomes(ended, reply))
    try:
        return sum(await reply.wait(_ANSWER_S))
    except TimeoutError:
        raise StoreUnavailableError("the recorder does not answer") from None
