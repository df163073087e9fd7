"""Ids: version 7, growing, and each of them another."""

import uuid

from duly.storage.ids import uuid7

NOW_MS = 1_796_000_000_123


def test_an_id_is_a_uuid_of_version_7_that_holds_its_time() -> None:
    made = uuid7(NOW_MS)
    assert isinstance(made, uuid.UUID)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 >= NOW_MS


def test_ids_grow_within_a_millisecond_and_when_the_clock_goes_back() -> None:
    made = [uuid7(NOW_MS - number // 1000) for number in range(10_000)]
    assert made == sorted(made)
    assert len({one.int & 0x3FFF_FFFF_FFFF_FFFF for one in made}) == len(made)
