"""Log lines on stderr: plain for people, JSON for machines.

A line that is about one task says so in fields, not in its text alone: `task_id`, `token` (of the
attempt), `slot`, `queue`, `worker`. Whoever logs gives them as `extra`. Lines that a handler logs get them from
`about`, which the worker sets around it.
"""

import json
import logging
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

FIELDS: Final = ("task_id", "token", "slot", "queue", "worker")
"""The fields that a line may have, in their order."""

about: Final[ContextVar[Mapping[str, object]]] = ContextVar("about", default={})  # noqa: B039 - never changed
"""What all lines logged in this context are about."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    known = {**about.get(), **record.__dict__}
    return {name: known[name] for name in FIELDS if name in known}


class TextFormatter(logging.Formatter):
    """A line for people; the fields follow the text as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of logging
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str, style: str) -> None:
    """Send the logs of this process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
