"""Fixtures of the contributed handlers' tests."""

from collections.abc import AsyncIterator

import pytest
from worker_rig import FakeNode


@pytest.fixture
async def node(redis_url: str) -> AsyncIterator[FakeNode]:
    """A fake node on the run's server, emptied before."""
    fake = FakeNode(redis_url)
    yield fake
    await fake.close()
