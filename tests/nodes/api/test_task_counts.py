"""Counting for those who ask: not more often than every few seconds, whatever becomes of it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.nodes.api.task_counts import TaskCounts
from duly.storage import counting
from duly.storage.errors import StoreUnavailableError


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), RuntimeError("a fault")])
async def test_what_fails_is_not_tried_again_at_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, tries = 1_000.0, 0

    async def counts(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise error

    monkeypatch.setattr(counting, "counts", counts)
    clock = SimpleNamespace(now_us=lambda: 0, monotonic=lambda: now)
    counted = TaskCounts(cast(Any, SimpleNamespace(api_db=None, clock=clock, slots=range(256))))
    for _ in range(5):
        assert await counted.get() is None
    assert tries == 1
    now += 60
    assert await counted.get() is None
    assert tries == 2
