"""Fixtures of the tests on real servers."""

from collections.abc import AsyncIterator

import pytest
from node_rig import RunningNode, running_node

from duly.nodes.settings import Region


@pytest.fixture
async def node(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A running node with a database of its own."""
    async with running_node(fresh_database, redis_url) as running:
        yield running


@pytest.fixture
async def regional(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A running node that knows another region, which does not answer."""
    other = Region("eu", "http://127.0.0.1:9", "secret")
    async with running_node(fresh_database, redis_url, region="us", regions=(other,)) as running:
        yield running
