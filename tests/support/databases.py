"""Databases made for tests on one PostgreSQL server and dropped again."""

import asyncio
import itertools
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

T = TypeVar("T")

_TIMEOUT_S = 60.0


def run_aside(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end in a loop and thread of its own, whatever loop the test uses."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Databases:
    """Makes databases on the server of `server_url`, whose user may create them."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._prefix = f"duly_test_{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._names: list[str] = []

    def create(self, template: str | None = None) -> str:
        """URL of a new database: empty, or a copy of the one of the URL `template`."""
        name = f"{self._prefix}_{next(self._numbers)}"
        source = urlsplit(template).path.strip("/") if template else "template1"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        self._names.append(name)
        return urlsplit(self._server_url)._replace(path=f"/{name}").geturl()

    def drop(self, url: str) -> None:
        """Drop a database made here, ending whatever is connected to it."""
        name = urlsplit(url).path.strip("/")
        self._names.remove(name)
        self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def close(self) -> None:
        """Drop what is left."""
        for name in self._names:
            self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        run_aside(_execute(self._server_url, statement))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
