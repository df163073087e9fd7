"""Both clusters, for tests of what is promised of each."""

import pytest

from duly.testing import Cluster, MemoryCluster
from duly.testing.fixtures import duly_cluster, duly_memory_cluster, duly_servers
from duly.testing.harness import Harness

PATIENCE_S = 120.0  # a busy machine may be slow

__all__ = ["duly_cluster", "duly_memory_cluster", "duly_servers"]


@pytest.fixture(params=["memory", "servers"])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Not started yet."""
    if request.param == "memory":
        return MemoryCluster(patience_s=PATIENCE_S)
    return Cluster(request.getfixturevalue("duly_servers"), patience_s=PATIENCE_S)
