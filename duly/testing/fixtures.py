"""Fixtures for pytest; a plugin that a conftest.py loads: `pytest_plugins = ["duly.testing.fixtures"]`.

They are plain fixtures, so that they go with any plugin for async tests: the test enters the cluster.

    async def test_reminder(duly_cluster):
        async with duly_cluster as cluster: ...
"""

from collections.abc import Iterator

import pytest

from duly.testing.cluster import Cluster
from duly.testing.memory import MemoryCluster
from duly.testing.servers import TestServers


@pytest.fixture(scope="session")
def duly_servers() -> Iterator[TestServers]:
    """One PostgreSQL and one Valkey for the whole run."""
    with TestServers() as servers:
        yield servers


@pytest.fixture
def duly_cluster(duly_servers: TestServers) -> Cluster:
    """A cluster on these servers, not started yet; its database is its own."""
    return Cluster(duly_servers)


@pytest.fixture
def duly_memory_cluster() -> MemoryCluster:
    """A cluster in memory."""
    return MemoryCluster()
