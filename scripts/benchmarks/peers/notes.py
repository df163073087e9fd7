"""How a handler notes that it has started: a record of 12 bytes in a file of its process.

Needs nothing but the standard library: it also runs in the environments of the peers.
"""

import os
import struct
import time
from pathlib import Path

WARM_UP = 0xFFFFFFFF
"""The number of a task that only tries whether the workers work."""

TEXT = "x" * 100
"""The rest of each task's payload."""

_RECORD = struct.Struct("<Id")


class Notes:
    """Writes the notes of this process, and of the processes that it forks, into a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._owner = 0
        self._file = -1

    def started(self, number: int) -> None:
        """The handler of the task with this number has started."""
        now = time.time()
        if self._owner != os.getpid():
            self._owner = os.getpid()
            path = self._folder / f"{self._owner}.starts"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, _RECORD.pack(number, now))

    def ready(self) -> None:
        """This worker takes tasks."""
        (self._folder / f"{os.getpid()}.ready").touch()


def count_ready(folder: Path) -> int:
    """Workers that have said that they are ready."""
    return len(list(folder.glob("*.ready")))


def count_starts(folder: Path) -> int:
    """Notes so far, warm-ups among them."""
    return sum(path.stat().st_size for path in folder.glob("*.starts")) // _RECORD.size


def read_starts(folder: Path) -> tuple[dict[int, float], int]:
    """The first start of each task by its number, and how many starts there were, warm-ups left out."""
    first: dict[int, float] = {}
    count = 0
    for path in folder.glob("*.starts"):
        content = path.read_bytes()
        whole = len(content) - len(content) % _RECORD.size
        for number, at in _RECORD.iter_unpack(content[:whole]):
            if number != WARM_UP:
                count += 1
                first[number] = min(at, first.get(number, at))
    return first, count
