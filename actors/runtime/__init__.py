"""The actor runtime: typed messages, bounded mailboxes, a supervised tree. See docs/actors.md.

reply       a one-shot answer that travels in a message
mailbox     what an actor is sent; outlives any one instance of it
actor       the shape of an actor
child       a place in the tree, and what is told of it
supervisor  starts in order, restarts what crashes, gives up loudly, stops in reverse
"""

from duly.actors.runtime.actor import Actor
from duly.actors.runtime.child import Child, ChildState, Runnable
from duly.actors.runtime.mailbox import Mailbox, MailboxClosedError
from duly.actors.runtime.reply import ActorCrashedError, Reply
from duly.actors.runtime.supervisor import (
    ActorReturnedError,
    Strategy,
    Supervisor,
    TooManyRestartsError,
)

__all__ = [
    "Actor",
    "ActorCrashedError",
    "ActorReturnedError",
    "Child",
    "ChildState",
    "Mailbox",
    "MailboxClosedError",
    "Reply",
    "Runnable",
    "Strategy",
    "Supervisor",
    "TooManyRestartsError",
]
