"""How the end of a task is waited for, in virtual time."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from virtual_time import VIRTUAL_TIME

import duly
from duly.nodes.client import waiting


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


class Fate:
    """A task that ends after `runs_s`, at a node that is away for `away_s` from the second look on."""

    def __init__(self, status: str, runs_s: float, away_s: float = 0) -> None:
        self.looks: list[float] = []
        self._end = (status, runs_s)
        self._away_s = away_s

    async def look(self) -> duly.Task:
        now = asyncio.get_running_loop().time()
        self.looks.append(now)
        if 0 < now < self._away_s:
            raise duly.Unreachable("away")
        status, runs_s = self._end
        return duly.Task(id=UUID(int=1), type="t", status=status if now >= runs_s else "running")


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_it_returns_the_task_once_it_is_over(status: str) -> None:
    fate = Fate(status, 60)
    assert (await waiting.until_over(fate.look, None)).status == status
    pauses = [after - before for before, after in zip(fate.looks, fate.looks[1:], strict=False)]
    assert 0.04 <= pauses[0] <= 0.06
    assert 1.6 <= pauses[-1] <= 2.4
    assert len(fate.looks) < 50


async def test_it_gives_up_in_time() -> None:
    with pytest.raises(TimeoutError):
        await waiting.until_over(Fate("completed", 60).look, 5)
    assert asyncio.get_running_loop().time() == 5


async def test_a_node_that_is_away_for_less_than_a_minute_is_waited_for() -> None:
    assert (
        await waiting.until_over(Fate("completed", 70, away_s=55).look, None)
    ).status == "completed"
    began = asyncio.get_running_loop().time()
    with pytest.raises(duly.Unreachable):
        await waiting.until_over(Fate("completed", 2000, away_s=1000).look, None)
    assert 60 < asyncio.get_running_loop().time() - began < 65


async def test_an_answer_that_will_not_change_is_raised_at_once() -> None:
    async def look() -> duly.Task:
        raise duly.NotFound(404, {"detail": "no such task"}, (), None)

    with pytest.raises(duly.NotFound):
        await waiting.until_over(look, None)
    assert asyncio.get_running_loop().time() == 0
