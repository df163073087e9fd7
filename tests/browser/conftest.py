"""Fixtures of the tests in a real browser."""

from collections.abc import AsyncIterator

import pytest
from browser_rig import TOKENS, Site, chromium, site
from node_rig import RunningNode, running_node


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that asks for a token; its client may do everything."""
    async with running_node(fresh_database, redis_url, tokens=TOKENS, token="a-secret") as running:
        yield running


@pytest.fixture
async def admin(guarded: RunningNode) -> AsyncIterator[Site]:
    """A browser on the page of `guarded`."""
    async with chromium() as browser, site(browser, guarded.url) as made:
        yield made
