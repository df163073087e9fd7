"""A TCP proxy in front of PostgreSQL that loses answers, cuts connections, and swallows bytes."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_BYTES = 65536
COMMITTED = rb"C\x00\x00\x00.(?:SELECT \d+|INSERT 0 \d+|COMMIT)\x00"
"""Matches the server's word that a statement by itself, or a transaction, has ended well."""


class CuttingProxy:
    """Passes everything on, until it is told otherwise; its `url` leads to the real server."""

    def __init__(self, url: str) -> None:
        real = urlsplit(url)
        assert real.hostname is not None
        assert real.port is not None
        self._real = real
        self._place = (real.hostname, real.port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._holding = False
        self._cut_at: re.Pattern[bytes] | None = None
        self._cut_request = False
        self.accepted = 0
        """How many clients have come."""
        self.cuts = 0
        """How often an answer was lost and its connection cut."""
        self.url = ""

    def cut_at(self, pattern: bytes = COMMITTED) -> None:
        """Of the next answer that matches nothing arrives: both ends are told that the other is gone."""
        self._cut_at = re.compile(pattern, re.DOTALL)

    def cut_before(self) -> None:
        """The next bytes from a client never arrive: both ends are told that the other is gone."""
        self._cut_request = True

    def swallow(self) -> None:
        """From now on nothing comes through and nobody is told, as when packets are dropped."""
        self._passing.clear()

    def hold_requests(self) -> None:
        """From now on clients' bytes wait; they go on at `pass_on`, even if the client has left."""
        self._holding = True
        self._passing.clear()

    def pass_on(self) -> None:
        """New connections work again; those of before too, if they were only held."""
        self._holding = False
        self._passing.set()

    def cut_all(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        self.accepted += 1
        try:
            above, below = await asyncio.open_connection(*self._place)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, below}
        try:
            await asyncio.gather(
                self._pump(reader, below, writer, answer=False),
                self._pump(above, writer, below, answer=True),
            )
        finally:
            self._writers -= {writer, below}

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        *,
        answer: bool,
    ) -> None:
        """Hand on what comes; `answer`: it comes from the server."""
        try:
            while data := await source.read(_BYTES):
                if not self._passing.is_set():
                    if not self._holding:
                        # Never again: what was lost in between is missing.
                        await asyncio.Event().wait()
                    await self._passing.wait()
                if self._is_to_be_cut(data, answer=answer):
                    self.cuts += 1
                    target.transport.abort()
                    back.transport.abort()
                    return
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass  # one end is gone: so is the other
        finally:
            with suppress(ConnectionError, RuntimeError):
                target.close()

    def _is_to_be_cut(self, data: bytes, *, answer: bool) -> bool:
        if answer:
            cut = self._cut_at is not None and self._cut_at.search(data) is not None
            self._cut_at = None if cut else self._cut_at
        else:
            cut, self._cut_request = self._cut_request, False
        return cut


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncIterator[CuttingProxy]:
    """A proxy for the server of `url`."""
    proxy = CuttingProxy(url)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        with suppress(asyncio.CancelledError):
            await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    credentials = proxy._real.netloc.rpartition("@")[0]
    proxy.url = proxy._real._replace(netloc=f"{credentials}@127.0.0.1:{port}").geturl()
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut_all()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)
