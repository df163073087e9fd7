"""The actor runtime: typed messages, bounded mailboxes, a supervised tree. See docs/actors.md.

    mailbox     what an actor is sent; outlives any one instance of it
    reply       a one-shot answer that travels in a message
    actor       the shape of an actor
    supervisor  starts in order, restarts what crashes, gives up loudly, stops in reverse
"""

from duly.actors.runtime.actor import Actor, Runnable
from duly.actors.runtime.mailbox import Mailbox, MailboxClosedError
from duly.actors.runtime.reply import Reply
from duly.actors.runtime.supervisor import (
    ActorReturnedError,
    Child,
    Supervisor,
    TooManyRestartsError,
)

__all__ = [
    "Actor",
    "ActorReturnedError",
    "Child",
    "Mailbox",
    "MailboxClosedError",
    "Reply",
    "Runnable",
    "Supervisor",
    "TooManyRestartsError",
]
