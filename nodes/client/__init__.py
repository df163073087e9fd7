"""The HTTP client: submit tasks and look after them, from async or plain code.

client.py     Client: one method for each call of the API, with those of
submitting.py submit one task, a batch, or as many as there are; batches.py how these are put together
calls.py      the session, `get` and `wait`; waiting.py how the end of a task is waited for
bulk.py       client.bulk: actions on all tasks that a filter finds
sync.py       SyncClient, SyncBulkCalls: the same methods for code without an event loop
models.py     tasks, runs, the ledger, alerts, queues, nodes and workers, as the API shows them
options.py    what may be given, and how it is written as JSON
schedules.py  Every and Cron
sealing.py    what a codec does to submissions and answers
values.py     times and durations
transport.py  one HTTP session: repeats what may be repeated, turns answers into errors
errors.py     the error tree
"""

from duly.nodes.client.bulk import TaskFilter
from duly.nodes.client.client import Client
from duly.nodes.client.errors import (
    ApiError,
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    PreconditionFailed,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from duly.nodes.client.models import (
    Alert,
    BulkJob,
    BulkPreview,
    Explanation,
    LiveNode,
    LiveWorker,
    Occurrence,
    Queue,
    RejectedReport,
    Run,
    Task,
    Verdict,
)
from duly.nodes.client.options import NewTask, QueueChanges, TaskChanges, TaskOptions
from duly.nodes.client.pages import Pages
from duly.nodes.client.schedules import Cron, Every
from duly.nodes.client.sync import SyncClient
from duly.nodes.errors import DulyError

__all__ = [
    "Alert",
    "ApiError",
    "BulkJob",
    "BulkPreview",
    "Client",
    "Conflict",
    "Cron",
    "DulyError",
    "Every",
    "Explanation",
    "FieldError",
    "Invalid",
    "LiveNode",
    "LiveWorker",
    "NewTask",
    "NotFound",
    "Occurrence",
    "Pages",
    "PreconditionFailed",
    "Queue",
    "QueueChanges",
    "RejectedReport",
    "Run",
    "SyncClient",
    "Task",
    "TaskChanges",
    "TaskFilter",
    "TaskOptions",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Verdict",
]
