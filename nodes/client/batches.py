"""Many tasks in one request, and a stream of tasks in one request after another."""

import time
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from duly.nodes.client import options, sealing
from duly.nodes.codec import Codec
from duly.storage.ids import uuid7

Progress = bool | Callable[[int], None]
"""True: a bar on stderr. Or what is told, after each request, how many tasks are stored so far."""

_BYTES_MAX: Final = 16 << 20
"""A request with so much in it is sent, however few tasks it has; the API takes 64 MiB."""


class Batch:
    """The body of one request, made so that it can be sent twice.

    Tasks get their ids here unless one of them has an `idempotency_key` or a `name`: then those without get a key. If
    some have ids of the caller's own, it is sent as it is, and once. The API refuses an id that it knows, and answers a known key by the first task.
    """

    def __init__(self, tasks: Iterable[Mapping[str, Any]], codec: Codec | None = None) -> None:
        """Raises TypeError or ValueError that names the option which is wrong, CodecError of the codec."""
        items = [sealing.seal(codec, options.submission(task)) for task in tasks]
        self.ids: list[UUID] | None = None
        """Those made here, in the order of the tasks."""
        if any("id" in item for item in items):
            self.is_repeatable = False
        elif any(item.keys() & {"idempotency_key", "name"} for item in items):
            once = [options.make_once(item) for item in items]
            self.is_repeatable = all(once)
        else:
            self.is_repeatable = True
            now_ms = time.time_ns() // 1_000_000
            self.ids = [uuid7(now_ms) for _ in items]
            for item, made in zip(items, self.ids, strict=True):
                item["id"] = str(made)
        self.body = options.encode({"tasks": items})


class Stream:
    """Gathers tasks that come one by one into batches, and counts what is stored."""

    def __init__(self, size: int, tell: Callable[[int], None]) -> None:
        """At most `size` tasks a batch, fewer if they are large; raises ValueError if that is not 1 to 10,000."""
        if not 1 <= size <= 10_000:
            raise ValueError(f"batch_size is 1 to 10,000, not {size}")
        self._size = size
        self._tell = tell
        self._batch: list[Mapping[str, Any]] = []
        self._held = 0
        self.ids: list[UUID] = []
        """Of what is stored."""

    def add(self, task: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """Take in a task; returns a batch once there is a whole one."""
        self._batch.append(task)
        self._held += len(options.encode(task.get("payload")))
        full = len(self._batch) == self._size or self._held >= _BYTES_MAX
        return self.rest() if full else None

    def rest(self) -> list[Mapping[str, Any]]:
        """What no batch has had yet."""
        batch, self._batch, self._held = self._batch, [], 0
        return batch

    def stored(self, ids: list[UUID]) -> None:
        """Note what became of a batch."""
        self.ids += ids
        self._tell(len(self.ids))


@contextmanager
def stream(size: int, progress: Progress, tasks: object) -> Iterator[Stream]:
    """A `Stream` that shows its progress, and tells of an error how many tasks were stored before it."""
    with _shown(progress, tasks) as tell:
        made = Stream(size, tell)
        try:
            yield made
        except Exception as error:
            error.add_note(f"{len(made.ids)} tasks were stored before this")
            raise


@contextmanager
def _shown(progress: Progress, tasks: object) -> Iterator[Callable[[int], None]]:
    """Whom to tell how many are stored; raises RuntimeError for a bar without its package."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        try:
            from tqdm import tqdm
        except ImportError:
            raise RuntimeError('a bar needs tqdm: pip install "duly[progress]"') from None
        total = len(tasks) if isinstance(tasks, Sized) else None
        with tqdm(total=total, unit=" tasks", unit_scale=True) as bar:

            def tell(stored: int) -> None:
                bar.update(stored - bar.n)

            yield tell
