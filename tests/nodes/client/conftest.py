"""A fake API for the client's tests."""

from collections.abc import AsyncIterator

import pytest
from fake_api import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A fake API that runs for one test."""
    fake = FakeApi()
    await fake.server.start_server()
    yield fake
    await fake.server.close()
