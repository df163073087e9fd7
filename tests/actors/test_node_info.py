"""What nodes say of themselves, and that different time zone data are told once."""

import logging
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast

import msgspec
import pytest

from duly.actors import node_info
from duly.actors.context import Context, Options, Vitals
from duly.actors.node_info import ZoneVersions
from duly.wheel import zones
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us

STARTED_AT = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)


def own(vitals: Vitals | None = None) -> bytes:
    clock = ClusterClock(lambda: 100.0)
    clock.observe(100.0, 100.0, to_us(STARTED_AT))
    return node_info.own(Context(
        node_id="node", options=Options(), db=cast(Any, None), api_db=cast(Any, None),
        streams=cast(Any, None), lease_servers=cast(Any, None), members=cast(Any, None),
        statistics=cast(Any, None), clock=clock, vitals=vitals or Vitals(),
    ), STARTED_AT, 5)  # fmt: skip


def _words(tzdata: str | None) -> bytes:
    said = msgspec.json.decode(own())
    return msgspec.json.encode({**said, "tzdata": tzdata})


def test_a_node_reads_what_it_says() -> None:
    info = node_info.read(own())
    assert info is not None
    assert (info.started_at, info.slots, info.tzdata) == (STARTED_AT, 5, zones.VERSION)
    assert info.pid > 0
    assert info.version == version("duly")
    assert (info.lease_age_s, info.clock_offset_s, info.lag_p99_s) == (None, 0, None)
    assert (info.redis, info.postgres) == (True, True)


def test_a_node_tells_of_its_work() -> None:
    vitals = Vitals(
        slots=frozenset(range(5)), lease_renewed_at=99.2, wheel_entries=7, ready_entries=3
    )
    vitals.redis.note("publishing tasks", "no answer")
    info = node_info.read(own(vitals))
    assert info is not None
    assert (info.lease_age_s, info.wheel_entries, info.ready_entries) == (0.8, 7, 3)
    assert (info.redis, info.postgres) == (False, True)


def test_a_node_of_an_older_version_tells_less() -> None:
    said = msgspec.json.decode(own())
    older = {name: said[name] for name in ("host", "pid", "started_at", "slots", "tzdata")}
    info = node_info.read(msgspec.json.encode(older))
    assert info is not None
    assert (info.slots, info.version, info.redis) == (5, None, None)


@pytest.mark.parametrize("words", [b"", b"{}", b"{", b"[]", b'{"host":1}', b"\xff"])
def test_other_words_say_nothing(words: bytes) -> None:
    assert node_info.read(words) is None


def test_more_than_this_version_knows_is_passed_over() -> None:
    said = msgspec.json.decode(own())
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
