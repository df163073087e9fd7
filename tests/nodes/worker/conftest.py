"""Fixtures of the worker's tests: a fake node, a server of one's own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from private_valkey import PrivateValkey
from worker_rig import FakeNode


@pytest.fixture
async def node(redis_url: str) -> AsyncIterator[FakeNode]:
    """A fake node on the run's server, emptied before."""
    fake = FakeNode(redis_url)
    yield fake
    await fake.close()


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    """A server that the test may stop, pause and start again."""
    server = PrivateValkey(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def own_node(valkey: PrivateValkey) -> AsyncIterator[FakeNode]:
    """A fake node on the test's own server."""
    fake = FakeNode(valkey.url)
    yield fake
    await fake.close()
