"""Fixtures of the tests of single actors."""

from collections.abc import AsyncIterator

import pytest
from context_rig import open_context

from duly.actors.context import Context


@pytest.fixture
async def context(fresh_database: str, redis_url: str) -> AsyncIterator[Context]:
    """A context on an empty store and an empty Redis, without lease servers."""
    async with open_context(fresh_database, redis_url) as one:
        yield one
