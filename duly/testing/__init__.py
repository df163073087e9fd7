"""Tests of tasks and handlers, with a clock that moves when the test says so.

harness.py   what both clusters promise: `client`, `now`, `start`, `advance`, `settle`
clock.py     the clock that stands still until it is set
memory.py    MemoryCluster: no servers; api.py answers its client, store.py keeps its tasks,
             slots.py runs its workers' handlers
cluster.py   Cluster: a node on real servers; servers.py starts and empties these
fixtures.py  the fixtures for pytest: `pytest_plugins = ["duly.testing.fixtures"]`
"""

from duly.testing.cluster import Cluster
from duly.testing.errors import NotInMemory, NotSettled
from duly.testing.memory import MemoryCluster
from duly.testing.servers import TestServers

__all__ = ["Cluster", "MemoryCluster", "NotInMemory", "NotSettled", "TestServers"]
