"""The worker SDK: takes tasks from Redis, runs handlers, reports outcomes.

    worker.py     what users see: register handlers, run, stop
    session.py    one life of a worker: its parts, and the order in which they stop
    reader.py     streams ─▶ runner     runner.py   slots, timeouts, cancellation
    giving_back.py   what it does not begin
    reporter.py   outcomes ─▶ stream    liveness.py, control.py   the worker's own key and channel
    context.py, parent.py   what a handler sees   effects.py   side effects that happen once
    handlers.py   which function runs which type    calling.py   in which thread or process, within which middleware

The protocol is in the design, section 7; its commands are in `duly.storage.conveyor`.
"""

from duly.nodes.worker.calling import Next
from duly.nodes.worker.context import Context
from duly.nodes.worker.effects import create_effects_table
from duly.nodes.worker.outcomes import AlreadyDone, Fail, Retry, Snooze, Superseded
from duly.nodes.worker.parent import Parent
from duly.nodes.worker.worker import Worker

__all__ = [
    "AlreadyDone",
    "Context",
    "Fail",
    "Next",
    "Parent",
    "Retry",
    "Snooze",
    "Superseded",
    "Worker",
    "create_effects_table",
]
