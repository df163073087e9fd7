"""Zones: which names there are, and pieces that agree with the zone data to the second."""

import struct
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise

import pytest
import tzdata
from cron_oracle import package_zone

from duly.wheel import zones
from duly.wheel.zones import ZoneError, zone

BEGIN, END = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2015, 2037))
FAR = int(datetime(2999, 6, 1, tzinfo=UTC).timestamp())


def _data(name: str) -> bytes:
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def _changes(name: str) -> list[tuple[int, int]]:
    """(instant, offset from then on) as the file has them, in [BEGIN, END); RFC 8536."""
    data = _data(name)
    isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[20:44])
    data = data[44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut :]  # the 32-bit part
    isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[20:44])
    instants = struct.unpack(f">{times}q", data[44 : 44 + times * 8])
    kinds = data[44 + times * 8 : 44 + times * 9]
    infos = data[44 + times * 9 :]
    offsets = [struct.unpack(">l", infos[6 * n : 6 * n + 4])[0] for n in range(types)]
    found, offset = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if BEGIN <= instant < END and offsets[kind] != offset:
            found.append((instant, offsets[kind]))
        offset = offsets[kind]
    return found


def test_pieces_are_those_of_the_data_for_every_zone() -> None:
    different = {_data(name): name for name in sorted(zones.names())}  # many are aliases
    for name in different.values():
        place, at, found = zone(name), BEGIN, []
        piece = before = place.piece(at)
        assert piece.start <= at < piece.end
        while piece.end < END:
            piece = place.piece(piece.end)
            assert piece.start == before.end
            if piece.offset != before.offset:
                found.append((piece.start, piece.offset))
            before = piece
        last_listed = max((instant for instant, _ in _changes(name)), default=BEGIN)
        listed = [change for change in found if change[0] <= last_listed]
        assert listed == _changes(name), name


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/Santiago", "UTC", "Asia/Tehran"])
def test_pieces_follow_the_rules_of_the_far_future(name: str) -> None:
    place = zone(name)
    for at in range(FAR, FAR + 400 * 86_400, 7 * 86_400 + 1234):
        offset = datetime.fromtimestamp(at, package_zone(name)).utcoffset()
        assert offset is not None
        assert place.piece(at).offset == offset.total_seconds()


def test_a_piece_knows_what_was_shown_before_and_comes_again() -> None:
    place = zone("Europe/Berlin")
    spring = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp())
    autumn = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp())
    summer, winter = place.piece(spring), place.piece(autumn)
    assert (summer.start, summer.offset) == (spring, 7200)
    assert summer.reached == spring + 3600  # 02:00, while it begins at 03:00
    until_autumn = place.piece(autumn - 1)
    assert (until_autumn.end, until_autumn.offset) == (autumn, 7200)
    assert until_autumn.returns == autumn + 3600  # 02:00, while it ends at 03:00
    assert (winter.start, winter.offset) == (autumn, 3600)
    assert winter.reached == autumn + 7200


def test_where_a_piece_is_cut_nothing_jumps() -> None:
    place = zone("Asia/Kolkata")
    piece = place.piece(BEGIN)
    cut = place.piece(piece.end)
    assert piece.returns == cut.reached == piece.end + 19_800 == cut.start + 19_800


@pytest.mark.parametrize(
    "name",
    [
        "", "localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/UTC", "America",
        "/etc/localtime", "../../etc/passwd", "./UTC", "UTC/", "Europe//Berlin", "zone.tab",
        "tzdata.zi", "__init__.py", "leapseconds", "UTC\0", "UTC+3", "+02:00", "x" * 300, "x" * 5000,
        "\ud800", "Europe/Berlin\0", "europe/berlin",
    ],
)  # fmt: skip
def test_c44_odd_names_are_refused(name: str) -> None:
    with pytest.raises(ZoneError) as caught:
        zone(name)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_the_spelling_is_told() -> None:
    with pytest.raises(ZoneError, match="did you mean Europe/Berlin"):
        zone("europe/berlin ")


def test_the_version_is_that_of_the_package() -> None:
    assert zones.VERSION == tzdata.IANA_VERSION
    assert zones.VERSION[:2] == "20"
    assert all(first < second for first, second in pairwise(sorted(zones.names())))
