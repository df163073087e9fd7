"""Duly: a distributed task scheduler. Every task, duly, once.

This package is the public face: the names that users import. Each is loaded at its first use, so
`import duly` costs next to nothing and a worker does not load the HTTP client.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.nodes.client import (
        ApiError,
        Client,
        Conflict,
        Cron,
        DulyError,
        Every,
        Invalid,
        NotFound,
        Occurrence,
        PreconditionFailed,
        Queue,
        RejectedReport,
        Run,
        SyncClient,
        Task,
        TooLarge,
        Unauthorized,
        Unavailable,
        Unreachable,
        Verdict,
    )
    from duly.nodes.codec import (
        Codec,
        CodecError,
        NotEncrypted,
        Tampered,
        UnknownKey,
        Unreadable,
    )
    from duly.nodes.transactions.submitting import submit_in, submit_in_sync
    from duly.nodes.worker import (
        AlreadyDone,
        Context,
        Fail,
        Next,
        Parent,
        Retry,
        Snooze,
        Superseded,
        Worker,
        create_effects_table,
    )

__all__ = [
    "AlreadyDone",
    "ApiError",
    "Client",
    "Codec",
    "CodecError",
    "Conflict",
    "Context",
    "Cron",
    "DulyError",
    "Every",
    "Fail",
    "Invalid",
    "Next",
    "NotEncrypted",
    "NotFound",
    "Occurrence",
    "Parent",
    "PreconditionFailed",
    "Queue",
    "RejectedReport",
    "Retry",
    "Run",
    "Snooze",
    "Superseded",
    "SyncClient",
    "Tampered",
    "Task",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnknownKey",
    "Unreachable",
    "Unreadable",
    "Verdict",
    "Worker",
    "create_effects_table",
    "submit_in",
    "submit_in_sync",
]

__version__ = version("duly")

_CODEC = frozenset({"Codec", "CodecError", "NotEncrypted", "Tampered", "UnknownKey", "Unreadable"})
_TRANSACTIONS = frozenset({"submit_in", "submit_in_sync"})
_WORKER = frozenset(
    {
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
    }
)


if not TYPE_CHECKING:  # a type checker should know the names above and no other

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'duly' has no attribute {name!r}")
        module = "duly.nodes.worker" if name in _WORKER else "duly.nodes.client"
        module = "duly.nodes.transactions.submitting" if name in _TRANSACTIONS else module
        module = "duly.nodes.codec" if name in _CODEC else module
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
