"""Shows that the worker lives. When its key runs out, the nodes treat what it holds as lost.

The key lives three periods (`storage.keys`), so two renewals may fail. It is written from the event
loop on purpose: a worker whose loop is stuck does no work either, and then its tasks should go to
another. A plain (not async) handler runs in a thread and cannot stick the loop.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from duly.actors.patience import Patience
from duly.nodes.worker.waiting import wait_for
from duly.storage import keys
from duly.storage.conveyor import Conveyor
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.worker")

STALL_S = 2.0
"""A renewal later than this means that something blocks the event loop."""


class Liveness:
    """Renews the liveness key of one worker."""

    def __init__(
        self,
        conveyor: Conveyor,
        queues: list[str],
        concurrency: int,
        sdk: str,
        running: Callable[[], int],
        signs: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`running` counts the attempts under way; it is shown with the other facts, and so are `signs`."""
        self._conveyor = conveyor
        self._facts = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": queues,
            "concurrency": concurrency,
            "sdk": sdk,
        }
        self._running = running
        self._signs = signs
        self._shown = False
        self._closing = asyncio.Event()

    async def first(self) -> None:
        """Write the key for the first time; says so if another worker seems to use the same id.

        Raises one of `TROUBLE`.
        """
        seen = await self._conveyor.seen()
        if seen is not None and not self._shown:
            log.warning(
                "there is a worker of the same id, or it died within the last %d s: %s",
                keys.LIVENESS_TTL_MS // 1000,
                seen.decode(errors="replace"),
            )
        self._shown = True  # from here on the key may be our own
        await self.beat()

    async def beat(self) -> None:
        """Renew the key now; raises one of `TROUBLE`."""
        told = {**self._facts, "running": self._running(), **self._signs()}
        await self._conveyor.beat(msgspec.json.encode(told))

    async def run(self) -> None:
        """Renew the key until `close`."""
        patience = Patience("renewing the worker's liveness", log)
        wait_s = keys.LIVENESS_EVERY_S
        stalled = False
        while True:
            before_s = time.monotonic()
            if await wait_for(self._closing, wait_s):
                return
            late_s = time.monotonic() - before_s - wait_s
            if late_s > STALL_S and not stalled:
                log.warning(
                    "the event loop was blocked for %.1f s: an async handler must not block, "
                    "a plain function may (it runs in a thread)",
                    late_s,
                )
            stalled = late_s > STALL_S
            try:
                await self.beat()
            except TROUBLE as error:
                wait_s = patience.failed(error)
            else:
                patience.worked()
                wait_s = keys.LIVENESS_EVERY_S

    def close(self) -> None:
        """End `run`."""
        self._closing.set()
