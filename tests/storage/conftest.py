"""Fixtures of the tests of the store."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis_cluster import TestCluster, cluster
from store_rig import opened

from duly.storage.database import Database
from duly.storage.redis import connect_any
from duly.storage.redis_cluster import ClusterClient
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


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A Redis Cluster of a file's tests, which stop none of its servers."""
    made = TestCluster(tmp_path_factory.mktemp("cluster"))
    try:
        asyncio.run(made.start())
        yield made
    finally:
        made.stop()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TestCluster]:
    """A Redis Cluster of this test's own, whose servers it may stop, pause and change."""
    async with cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def client(servers: TestCluster) -> AsyncIterator[ClusterClient]:
    """A client of that cluster."""
    made = connect_any(servers.url, name="test")
    assert isinstance(made, ClusterClient)
    yield made
    await made.aclose()


@pytest.fixture
def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
