"""Running a node as a process: event loop, signals, exit code."""

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from duly.actors.patience import Patience
from duly.actors.runtime import Supervisor, TooManyRestartsError
from duly.nodes.node import open_context, open_contexts, tree, tree_of_stores
from duly.nodes.server import Announce, check_address
from duly.nodes.settings import Settings
from duly.nodes.tls import certificate
from duly.storage import stores
from duly.storage.errors import RefusedError, StoreError, StoreUnavailableError
from duly.storage.layout import Layout

log = logging.getLogger("duly.node")

EXIT_CRASHED = 70
"""Exit code of a node whose actors crashed too often (EX_SOFTWARE)."""

_ORPHAN_STOP_S = 3.0


def run_loop(main: Callable[[], Awaitable[int]]) -> int:
    """Run `main` on uvloop where there is one; answers its exit code."""
    use_uvloop = sys.platform != "win32"
    return anyio.run(main, backend_options={"use_uvloop": use_uvloop})


async def run_node(settings: Settings) -> int:
    """Migrate, start the tree, run until a signal. Answers the exit code.

    Waits for a PostgreSQL that is not there yet; of several stores, for one that answers, or for all if they
    have not been divided yet. Raises ListenError if the API's port is not to be
    had, TlsError if its certificate is not to be used, StoreError if PostgreSQL does not let us in or its schema is not one for us.
    """
    announce = Announce(settings.host, certificate(settings))
    await check_address(settings.host, settings.port)
    layout = await _bring_schema(settings.stores)
    if layout is None:
        log.info("stopped before it had started")
        return 0
    if len(settings.stores) == 1:
        async with open_context(settings) as context:
            return await _live(tree(context, settings, announce), context.node_id)
    async with open_contexts(settings, layout) as contexts:
        supervisor = tree_of_stores(contexts, settings, announce)
        return await _live(supervisor, contexts[0].node_id)


async def _live(supervisor: Supervisor, node_id: str) -> int:
    log.info("node %s starts", node_id)
    code = await _serve(supervisor)
    log.info("node %s stopped", node_id)
    return code


async def _bring_schema(urls: Sequence[str]) -> Layout | None:
    """Migrate, as soon as PostgreSQL is there; None if a signal came first."""
    failure: StoreError | None = None
    layout: Layout | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
        try:
            layout = await _migrate(urls)
        except StoreError as error:  # carried out of the group, which would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return layout


async def _migrate(urls: Sequence[str]) -> Layout:
    patience = Patience("reaching PostgreSQL", log)
    while True:
        try:
            layout = await stores.bring_up(urls)
        except RefusedError:
            raise
        except StoreUnavailableError as error:
            await anyio.sleep(patience.failed(error))
        else:
            patience.worked()
            return layout


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


async def _serve(supervisor: Supervisor) -> int:
    ready = anyio.Event()
    code = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, supervisor, tasks.cancel_scope)
        tasks.start_soon(_settle_when_ready, ready)
        try:
            await supervisor.serve(ready)
        except* TooManyRestartsError as group:
            for error in group.exceptions:
                log.critical("giving up: %s", error)
            code = EXIT_CRASHED
        tasks.cancel_scope.cancel()
    return code


async def _stop_on_signal(supervisor: Supervisor, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        asked = False
        async for number in signals:
            if asked:
                scope.cancel()
                return
            asked = True
            log.info("%s: stopping", signal.Signals(number).name)
            supervisor.request_stop()


async def _settle_when_ready(ready: anyio.Event) -> None:
    await ready.wait()
    settle_memory(20_000)


def settle_memory(young: int) -> None:
    """What the start allocated stays: collections need not look at it again.

    `young`: after so many new objects the garbage collector looks at these; Python's own 700 would be at it
    several times for each batch of tasks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 20, 20)


def stop_when_stdin_closes() -> None:
    """For a child of `duly up`: stop when the parent is gone, however it went."""

    def watch() -> None:
        with contextlib.suppress(OSError):  # it is closed already
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ORPHAN_STOP_S)
        os.kill(os.getpid(), signal.SIGTERM)  # a node and a worker take this one as "at once"
        time.sleep(_ORPHAN_STOP_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="watch-stdin", daemon=True).start()
