"""Back-off that logs once, shows on a board, and is separate for each queue."""

import logging

import pytest

from duly.actors.patience import Patience, QueuePatience
from duly.actors.troubles import Troubles

log = logging.getLogger("duly.test")


def test_a_streak_is_logged_once_and_shown_with_its_beginning_and_its_latest_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    board = Troubles()
    patience = Patience("working", log, board)
    patience.failed(ConnectionError("first"))
    began = board.now["working"].since
    for _ in range(10):
        patience.failed(TimeoutError())
    assert board.now["working"] == (began, "TimeoutError")
    patience.worked()
    assert not board.now
    assert [one.getMessage() for one in caplog.records] == [
        "working fails, trying on: first", "working works again after 11 failures",
    ]  # fmt: skip


def test_waits_grow_to_a_bound() -> None:
    longest_s = Patience.LONGEST_S
    patience = Patience("working", log)
    waits = [patience.failed(OSError()) for _ in range(50)]
    assert 0.08 <= waits[0] <= 0.12
    assert all(0.8 * longest_s <= wait <= 1.2 * longest_s for wait in waits[10:])


def test_each_works_own_line_is_cleared_by_itself_alone() -> None:
    board = Troubles()
    one, other = Patience("one", log, board), Patience("other", log, board)
    one.failed(OSError("x"))
    other.failed(OSError("y"))
    one.worked()
    assert set(board.now) == {"other"}
    Patience("other", log, board).worked()  # the actor's next life
    assert not board.now


def test_queues_wait_each_for_itself() -> None:
    now, board = [100.0], Troubles()
    patience = QueuePatience("publishing", log, lambda: now[0], board)
    patience.failed("bad", OSError("x"))
    assert patience.failing("bad")
    assert not patience.failing("good")
    assert 0.08 <= patience.pause_s("bad") <= 0.12
    assert patience.pause_s("good") == 0
    assert set(board.now) == {"publishing of queue bad"}
    now[0] += 1
    assert patience.pause_s("bad") == 0
    patience.worked("bad")
    assert not patience.failing("bad")
    assert not board.now
