"""A fake API for the client's tests."""

from collections.abc import AsyncIterator

import pytest
from fake_api import FakeApi

import duly


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A fake API that runs for one test."""
    fake = FakeApi()
    await fake.server.start_server()
    yield fake
    await fake.server.close()


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[duly.Client]:
    """A client with a token."""
    async with duly.Client(api.url, token="secret") as made:
        yield made
