"""The machine's time zone, wherever systems write it down."""

from pathlib import Path

import pytest

from duly.nodes.cli.local_zone import local_zone


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "America/New_York"),
        (":/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("CET-1CEST", None),
    ],
)
def test_the_variable_comes_first(etc: Path, value: str, zone: str | None) -> None:
    (etc / "timezone").write_text("Asia/Tokyo\n")
    assert local_zone({"TZ": value}, etc.parent) == zone


def test_the_link(etc: Path) -> None:
    (etc / "timezone").write_text("Asia/Tokyo\n")
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Paris")
    assert local_zone({"TZ": ""}, etc.parent) == "Europe/Paris"


def test_the_file_with_the_name(etc: Path) -> None:
    (etc / "localtime").write_bytes(b"TZif")
    (etc / "timezone").write_text("Asia/Tokyo\n")
    assert local_zone({}, etc.parent) == "Asia/Tokyo"


def test_a_copy_without_a_name_is_not_guessed(etc: Path) -> None:
    (etc / "localtime").write_bytes(b"TZif")
    assert local_zone({}, etc.parent) is None


def test_nothing_is_utc(etc: Path) -> None:
    assert local_zone({}, etc.parent) == "UTC"
