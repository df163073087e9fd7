"""Fixtures of the tests in a real browser."""

from collections.abc import AsyncIterator

import pytest
from browser_rig import TOKENS, Site, chromium, site
from node_rig import RunningNode, running_node
from playwright.async_api import Browser


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that asks for a token; its client may do everything."""
    async with running_node(fresh_database, redis_url, tokens=TOKENS, token="a-secret") as running:
        yield running


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A browser for the tests of one module, which so share a loop; each test has jars of its own."""
    async with chromium() as made:
        yield made


@pytest.fixture
async def admin(guarded: RunningNode, browser: Browser) -> AsyncIterator[Site]:
    """The page of `guarded` in a browser."""
    async with site(browser, guarded.url) as made:
        yield made
