"""The end of what a process writes, however much that is."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Final

_SLACK_BYTES: Final = 65_536  # how far the kept bytes may grow before they are cut


class Tail(asyncio.Protocol):
    """Reads a pipe to its end and keeps the last bytes."""

    def __init__(self, keep_bytes: int) -> None:
        self.total_bytes = 0
        """How much was read."""
        self.ended = asyncio.Event()
        """Set once nobody holds the other end any more."""
        self._keep = keep_bytes
        self._kept = bytearray()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.total_bytes += len(data)
        self._kept += data
        if len(self._kept) > self._keep + _SLACK_BYTES:
            self._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.ended.set()

    def text(self) -> str:
        """What was kept, as text that JSONB can hold; a character that was cut is left out."""
        self._cut()
        kept = bytes(self._kept)
        if self.total_bytes > len(kept):
            begin = next((at for at in range(min(4, len(kept))) if kept[at] & 0xC0 != 0x80), 0)
            kept = kept[begin:]
        return kept.decode(errors="replace").replace("\0", "\ufffd")

    def _cut(self) -> None:
        del self._kept[: max(0, len(self._kept) - self._keep)]


class Pipe:
    """A pipe: one end for a process, the other read into `tail`."""

    def __init__(self, tail: Tail, end: int) -> None:
        self.tail = tail
        self.end = end
        """The file descriptor for the process."""
        self._held = True

    def let_go(self) -> None:
        """Close our copy of the process's end: it has its own, or never came."""
        if self._held:
            self._held = False
            os.close(self.end)


@contextlib.asynccontextmanager
async def pipe(keep_bytes: int) -> AsyncIterator[Pipe]:
    """A pipe for the length of the block."""
    ours, theirs = os.pipe()
    made = Pipe(Tail(keep_bytes), theirs)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: made.tail, os.fdopen(ours, "rb", 0)
        )
        try:
            yield made
        finally:
            transport.close()
    finally:
        made.let_go()
