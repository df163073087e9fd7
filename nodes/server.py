"""The HTTP server, as a part of the node's tree: the last to start, the first to stop."""

import asyncio
import logging
from typing import NoReturn

from aiohttp import web

from duly.actors.context import Context
from duly.actors.runtime import Actor, Mailbox
from duly.nodes.api.app import build_app
from duly.nodes.settings import Settings

log = logging.getLogger("duly.api")

_LINE_BYTES = 8190
_KEEPALIVE_S = 75.0


class ListenError(Exception):
    """The API cannot listen where it should; the text says why."""


async def check_address(host: str, port: int) -> None:
    """Find out before anything is started whether the API will be able to listen.

    Raises ListenError: the port is in use or not permitted, or the host is not one of ours.
    """
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise ListenError(f"cannot listen on {host} port {port}: {error}") from None
    server.close()
    await server.wait_closed()


class ApiServer(Actor[NoReturn]):
    """Listens from `started` on; at a stop, requests under way may finish."""

    name = "api"

    def __init__(self, context: Context, settings: Settings, announce: "Announce") -> None:
        super().__init__(Mailbox("api", 1))
        self._settings = settings
        self._announce = announce
        self._runner = web.AppRunner(
            build_app(context, settings),
            access_log=None,
            auto_decompress=False,  # a compressed body is refused, not unfolded first
            keepalive_timeout=_KEEPALIVE_S,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
            shutdown_timeout=settings.stop_grace_s / 2,
        )

    async def started(self) -> None:
        await self._runner.setup()
        # The port of an earlier start, so that a restart does not move an API on port 0.
        port = self._announce.port or self._settings.port
        site = web.TCPSite(self._runner, self._settings.host, port, backlog=1024)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self._announce.listening(self._runner.addresses[0][1])

    async def run(self) -> None:
        try:
            await self.stopping.wait()
        finally:
            await self._runner.cleanup()


class Announce:
    """Where the API listens; known once it has started."""

    def __init__(self, host: str) -> None:
        self._host = f"[{host}]" if ":" in host else host
        self.port: int | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    def listening(self, port: int) -> None:
        """The server listens on this port."""
        if self.port is None:
            self.port = port
            log.info("listening on %s", self.url)
