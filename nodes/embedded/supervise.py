"""Keep the embedded servers running: one that ends is started again on its port."""

import logging
import random
from typing import NoReturn

import anyio
import anyio.to_thread

from duly.nodes.embedded.errors import EmbeddedError
from duly.nodes.embedded.pair import EmbeddedServers
from duly.nodes.embedded.server import Server

logger = logging.getLogger(__name__)

_CHECK_EVERY_S = 0.25
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 15.0


async def keep_running(servers: EmbeddedServers) -> NoReturn:
    """Watch started servers until cancelled. A paused server is left alone: it has not ended."""
    async with anyio.create_task_group() as group:
        for server in (servers.postgres, servers.valkey):
            group.start_soon(_keep, servers, server)
    raise AssertionError("the watching tasks only end by cancellation")


async def _keep(servers: EmbeddedServers, server: Server) -> NoReturn:
    while True:
        await anyio.sleep(_CHECK_EVERY_S)
        if not server.alive:
            logger.error("%s ended with code %s", server.title, server.process.exit_code)
            await _revive(servers, server)
            logger.info("%s runs again on port %d", server.title, server.port)


async def _revive(servers: EmbeddedServers, server: Server) -> None:
    """Try until it runs, waiting longer each time; says so once."""
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            await anyio.to_thread.run_sync(servers.revive, server, abandon_on_cancel=True)
        except EmbeddedError as error:
            if wait_s == _FIRST_WAIT_S:
                logger.error("%s does not start again, trying on: %s", server.title, error)
        else:
            return
        await anyio.sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
