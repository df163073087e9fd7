"""One line of the log for what happens to many queues."""

import logging

import pytest

from duly.actors.tally import Tally

log = logging.getLogger("test.tally")


def test_one_line_counts_all_and_names_the_first_few(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(log, "lost %d: %s")
    for number in range(500):
        tally.add(f"q{number:03}", 2)
    tally.tell()
    tally.tell()
    (line,) = caplog.messages
    assert line == "lost 1000: queues q000, q001, q002, q003, q004 and 495 more"


def test_what_was_told_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(log, "lost %d: %s")
    tally.add("b", detail="no id")
    tally.add("a", detail="no token")
    tally.add("never", 0)
    tally.tell()
    tally.add("c")
    tally.tell()
    assert caplog.messages == ["lost 2: queue(s) a, b; the first: no id", "lost 1: queue(s) c"]
