"""Append-only logs: JSON, a line a record, each in one write, so that a kill leaves whole lines."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Appends to one file; what was added is in the file whatever becomes of the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, **record: Any) -> None:
        """Append one record."""
        os.write(self._file, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def read(path: Path) -> Iterator[Any]:
    """Every record of a log. Raises ValueError for a line that is none."""
    with path.open("rb") as lines:
        for line in lines:
            yield json.loads(line)
