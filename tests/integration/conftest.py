"""Fixtures of the tests on real servers."""

from collections.abc import AsyncIterator, Iterator

import pytest
from databases import Databases
from node_rig import RunningNode, running_node


@pytest.fixture
async def node(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A running node with a database of its own."""
    async with running_node(fresh_database, redis_url) as running:
        yield running


@pytest.fixture
def two_stores(databases: Databases, template_url: str) -> Iterator[list[str]]:
    """URLs of two migrated, empty databases for this test alone."""
    urls = [databases.create(template_url) for _ in range(2)]
    yield urls
    for url in urls:
        databases.drop(url)
