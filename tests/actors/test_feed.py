"""What is told while somebody looks on, and that nothing is while nobody does."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from duly.actors.broadcaster import join
from duly.actors.feed import KEPT_MAX, Feed, Told
from duly.actors.node_info import NodeInfo
from duly.storage.claims import Ended
from duly.storage.events import Facts

IDS = [UUID(int=n) for n in range(KEPT_MAX + 10)]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def _words(listeners: int | None) -> bytes:
    return msgspec.json.encode(NodeInfo("h", 1, NOW, 1, listeners=listeners))


def test_nothing_is_kept_while_nobody_looks_on() -> None:
    feed = Feed()
    feed.tell("submitted", IDS)
    feed.note([_words(0), _words(None), b"not such words"])
    feed.tell("submitted", IDS)
    assert feed.take() == ([], 0)


def test_a_client_of_any_node_is_enough() -> None:
    feed = Feed()
    feed.listeners = 1
    feed.tell("paused", IDS[:1])
    feed.listeners = 0
    feed.note([_words(0), _words(2)])
    feed.tell_of("claimed", [(IDS[1], 7)])
    assert feed.take() == ([Told("paused", IDS[0]), Told("claimed", IDS[1], 7)], 0)
    feed.note([_words(0)])
    feed.tell("paused", IDS[:1])
    assert feed.take() == ([], 0)


async def test_nothing_wakes_nobody() -> None:
    feed = Feed()
    feed.listeners = 1
    feed.tell("submitted", [])
    feed.tell_of("claimed", [])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(feed.some(), 0.01)
    feed.tell("submitted", IDS[:1])
    await asyncio.wait_for(feed.some(), 10)


def test_what_is_too_much_is_counted() -> None:
    feed = Feed()
    feed.listeners = 1
    feed.tell("submitted", IDS)
    told, left_out = feed.take()
    assert (len(told), left_out) == (KEPT_MAX, 10)
    assert feed.take() == ([], 0)


@pytest.mark.parametrize(
    ("outcome", "recorded", "retry_count", "status", "change"),
    [
        ("completed", True, 0, "completed", "completed"),
        ("completed", False, 0, "cancelled", "stale"),
        ("failed", True, 1, "pending", "retrying"),
        ("lost", True, 1, "running", "retrying"),
        ("failed", True, 3, "failed", "failed"),
        ("failed", True, 0, "pending", "failed"),  # periodic: the next occurrence waits
        ("snoozed", True, 0, "pending", "retrying"),
    ],
)
def test_how_an_attempt_ended(
    outcome: str, recorded: bool, retry_count: int, status: str, change: str
) -> None:
    feed = Feed()
    feed.listeners = 1
    ended = Ended(IDS[0], 5, outcome, None, None, NOW)  # type: ignore[arg-type]
    feed.tell_ends([ended], {(IDS[0], 5)} if recorded else set())
    told, _ = feed.take()
    (event,) = join(told, {IDS[0]: Facts("t", "q", status, 9, retry_count)}, NOW)
    assert (event.change, event.status, event.token) == (change, status, 5)


def test_of_a_task_that_is_gone_there_is_no_event() -> None:
    assert join([Told("changed", IDS[0])], {}, NOW) == []
    (event,) = join([Told("changed", IDS[0])], {IDS[0]: Facts("t", "q", "pending", 9, 0)}, NOW)
    assert event.token == 9
