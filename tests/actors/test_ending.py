"""Ending an attempt whose recorder does not answer: PostgreSQL's trouble, not Redis's."""

from uuid import uuid4

import pytest
from store_rig import NOW

from duly.actors import ending
from duly.actors.context import Context
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError


async def test_a_recorder_that_does_not_answer_is_trouble_with_the_store(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_ANSWER_S", 0.01)
    lost = Ended(uuid4(), 1, "lost", "w", NOW, NOW, error='"lost"')
    with pytest.raises(StoreUnavailableError, match="recorder"):
        await ending.end(context, [lost])


async def test_nothing_to_end_asks_nobody(context: Context) -> None:
    assert await ending.end(context, []) == 0
    assert context.boxes.recorder.depth == 0
