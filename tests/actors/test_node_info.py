"""What nodes say of themselves, and that different time zone data are told once."""

import logging
from datetime import UTC, datetime

import msgspec
import pytest

from duly.actors import node_info
from duly.actors.node_info import ZoneVersions
from duly.wheel import zones

STARTED_AT = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)


def _words(tzdata: str | None) -> bytes:
    said = msgspec.json.decode(node_info.own(STARTED_AT, 5))
    return msgspec.json.encode({**said, "tzdata": tzdata})


def test_a_node_reads_what_it_says() -> None:
    info = node_info.read(node_info.own(STARTED_AT, 5))
    assert info is not None
    assert (info.started_at, info.slots, info.tzdata) == (STARTED_AT, 5, zones.VERSION)
    assert info.pid > 0


@pytest.mark.parametrize("words", [b"", b"{}", b"{", b"[]", b'{"host":1}', b"\xff"])
def test_other_words_say_nothing(words: bytes) -> None:
    assert node_info.read(words) is None


def test_more_than_this_version_knows_is_passed_over() -> None:
    said = msgspec.json.decode(node_info.own(STARTED_AT, 5))
    assert node_info.read(msgspec.json.encode({**said, "region": "eu"})) is not None


def test_a_difference_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "duly")
    versions = ZoneVersions()
    same = [_words("2026f"), _words("2026f"), _words(None), b"{}"]
    versions.note(same)
    assert not versions.differ
    for _ in range(3):
        versions.note([*same, _words("2025b")])
    assert versions.differ
    assert versions.known == ("2025b", "2026f")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "(2025b, 2026f)" in caplog.text
    for _ in range(3):
        versions.note(same)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    versions.note([*same, _words("2025b")])
    assert caplog.text.count("different time zone data") == 2
