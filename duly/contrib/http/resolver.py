"""Looks up names in threads of its own.

The event loop's look-ups share few threads with everything else in the process, also with the
worker's connection to Redis. A name server that does not answer must not hold those up.
"""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

from duly.nodes.worker.threads import Threads

LOOKUPS_MAX: Final = 64
"""Most look-ups at a time. One that nobody waits for any more counts until it has ended."""


class Resolver(AbstractResolver):
    """Asks the system (`getaddrinfo`), every time anew."""

    def __init__(self) -> None:
        self._threads = Threads("duly-http-dns")
        self._room = asyncio.Semaphore(LOOKUPS_MAX)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of `host`; raises OSError."""
        await self._room.acquire()
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._threads.call(partial(_look_up, host, port, family), partial(self._done, answer))
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=found,
                proto=proto,
                flags=socket.AI_NUMERICHOST,
            )
            for found, _, proto, _, address in await answer
        ]

    async def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    def _done(self, answer: "asyncio.Future[list[Any]]", found: "list[Any] | OSError") -> None:
        self._room.release()
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _look_up(host: str, port: int, family: int) -> "list[Any] | OSError":
    try:
        return socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except OSError as error:
        return error
    except UnicodeError:  # a label that IDNA does not allow
        return socket.gaierror(socket.EAI_NONAME, "it is no name")
