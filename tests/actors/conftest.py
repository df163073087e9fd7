"""Fixtures of the tests of single actors."""

import itertools
import random
from collections.abc import AsyncIterator

import firing_rig
import pytest
from context_rig import open_context

from duly.actors.context import Context


@pytest.fixture(autouse=True)
def numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a test have the same ids and slots, and waits the same jitter, whatever ran before."""
    monkeypatch.setattr(firing_rig, "_numbers", itertools.count(firing_rig.FIRST_NUMBER))
    random.seed(0)


@pytest.fixture
async def context(fresh_database: str, redis_url: str) -> AsyncIterator[Context]:
    """A context on an empty store and an empty Redis, without lease servers."""
    async with open_context(fresh_database, redis_url) as one:
        yield one
