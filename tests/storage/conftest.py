"""Fixtures of the tests of the store."""

import socket
from collections.abc import AsyncIterator

import pytest
from store_rig import opened

from duly.storage.database import Database
from duly.storage.streams import Streams


@pytest.fixture
async def db(fresh_database: str) -> AsyncIterator[Database]:
    """A pool on a migrated, empty database."""
    async with opened(fresh_database) as pool:
        yield pool


@pytest.fixture
async def streams(redis_url: str) -> AsyncIterator[Streams]:
    """A node's access to empty streams."""
    one = Streams(redis_url, "node-a", timeout_s=5.0)
    yield one
    await one.close()


@pytest.fixture
def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
