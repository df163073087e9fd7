"""What a foreign worker reports through Redis: always recorded, and never more than the limits."""

import logging
from collections.abc import AsyncIterator

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from waiting import wait_for

from duly.actors import recorder
from duly.storage import keys


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        yield worker


async def test_every_report_is_recorded_within_the_limits(
    node: RunningNode, hand: HandWorker
) -> None:
    await hand.live()
    reports = {
        '"' + "x" * 3_000_000 + '"': ("failed", None, "result_too_large"),
        "x" * 3_000_000: ("failed", None, "result_too_large"),
        '"a\\u0000b"': ("failed", None, "invalid_report"),
        "{bad json": ("completed", "{bad json", None),
        '"\\ud800"': ("completed", '"\\ud800"', None),
        '{"n":1}': ("completed", {"n": 1}, None),
    }
    for result, (status, kept, kind) in reports.items():
        task_id = (await node.client.submit("t", max_retries=3)).id
        taken = await hand.take()
        await hand.report(taken, result=result, worker="w" * 5_000)

        async def ended(path: str = f"/v1/tasks/{task_id}") -> bool:
            found = (await node.call("GET", path)).body
            return found["status"] in ("completed", "failed")

        await wait_for(ended, 60, f"{result[:20]} is recorded")
        found = (await node.call("GET", f"/v1/tasks/{task_id}")).body
        assert (found["status"], found["result"]) == (status, kept), result[:20]
        assert (found["error"] or {}).get("type") == kind
        assert found["worker"] in ("w" * 200, None)
        assert len(str(found)) < 2_000
    await hand.nothing_left()


async def test_unreadable_reports_are_counted_in_the_log(
    node: RunningNode,
    hand: HandWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "_TELL_EVERY_S", 3_600.0)
    await hand.live()
    task_id = (await node.client.submit("t")).id
    taken = await hand.take()
    for number in range(300):
        await hand.call("XADD", keys.reports("default"), "*", "id", f"nobody {number}")
    await hand.report(taken)

    async def ended() -> bool:
        return (await node.client.get(task_id)).status == "completed"

    await wait_for(ended, 60, "what comes after them is recorded")
    await hand.nothing_left()
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len([line for line in lines if "unreadable report" in line]) <= 2, lines
