"""Fixtures of the tests on real servers."""

from collections.abc import AsyncIterator

import pytest
from node_rig import RunningNode, running_node


@pytest.fixture
async def node(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A running node with a database of its own."""
    async with running_node(fresh_database, redis_url) as running:
        yield running
