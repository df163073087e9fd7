"""The HTTP server, as a part of the node's tree: the last to start, the first to stop."""

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

from aiohttp import web

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.nodes.api.app import build_app
from duly.nodes.connections import SWEEP_S, Door
from duly.nodes.regions.directory import Regions
from duly.nodes.settings import Settings
from duly.nodes.tls import Certificate, TlsError

log = logging.getLogger("duly.api")

_LINE_BYTES = 8190
_KEEPALIVE_S = 75.0
_HANDSHAKE_S = 10.0


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

    def __init__(
        self,
        contexts: Sequence[Context],
        settings: Settings,
        announce: "Announce",
        regions: Regions,
    ) -> None:
        """`contexts`: of each store."""
        super().__init__(Mailbox("api", 1))
        self._settings = settings
        self._announce = announce
        self._door = Door(settings.max_connections, settings.request_timeout_s)
        self._listener: asyncio.Server | None = None
        self._patience = Patience("reading the certificate anew", log)
        self._runner = web.AppRunner(
            build_app(contexts, settings, self._door, regions),
            access_log=None,
            auto_decompress=False,  # a compressed body is refused, not unfolded first
            keepalive_timeout=_KEEPALIVE_S,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
            shutdown_timeout=settings.stop_grace_s / 2,
        )

    async def started(self) -> None:
        await self._runner.setup()
        try:
            self._listener = await self._listen()
        except BaseException:
            await self._runner.cleanup()
            raise
        self._announce.listening(self._listener.sockets[0].getsockname()[1])

    async def run(self) -> None:
        assert self._listener is not None
        try:
            await self._look_after()
        finally:
            self._listener.close()
            await self._runner.cleanup()

    async def _listen(self) -> asyncio.Server:
        assert self._runner.server is not None
        certificate = self._announce.certificate
        return await asyncio.get_running_loop().create_server(
            self._door.guarded(self._runner.server),
            self._settings.host,
            # The port of an earlier start, so that a restart does not move an API on port 0.
            self._announce.port or self._settings.port,
            backlog=1024,
            ssl=certificate.context if certificate else None,
            ssl_handshake_timeout=_HANDSHAKE_S if certificate else None,
        )

    async def _look_after(self) -> None:
        """Until the stop: end connections that keep the node waiting, follow a new certificate."""
        while not await self.pause(SWEEP_S):
            if ended := self._door.sweep():
                log.info("ended %d connections of clients that were too slow", ended)
            if self._announce.certificate is not None:
                try:
                    if self._announce.certificate.refresh():
                        log.info("new connections get the new certificate")
                except TlsError as error:
                    self._patience.failed(error)
                else:
                    self._patience.worked()


class Announce:
    """Where the API listens; known once it has started. It stays the same over restarts of the API."""

    def __init__(self, host: str, certificate: Certificate | None) -> None:
        self._host = f"[{host}]" if ":" in host else host
        self.certificate = certificate
        self.port: int | None = None

    @property
    def url(self) -> str:
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{self._host}:{self.port}"

    def listening(self, port: int) -> None:
        """The server listens on this port."""
        if self.port is None:
            self.port = port
            log.info("listening on %s", self.url)
