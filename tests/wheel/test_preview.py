"""Remarks of a preview: clock changes, the herd at :00, the end."""

from collections.abc import Mapping

import pytest

from duly.wheel.durations import parse_time
from duly.wheel.preview import Preview, preview
from duly.wheel.schedule import parse


def _preview(body: Mapping[str, object], after: str, count: int = 3) -> Preview:
    at = parse_time(after)
    return preview(parse(body, at), at, count)


def test_a_job_that_the_clock_moves() -> None:
    nightly = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    found = _preview(nightly, "2026-03-27T12:00:00Z")
    assert [time.isoformat()[:16] for time in found.fire_times] == [
        "2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30",
    ]  # fmt: skip
    (note,) = found.notes
    assert note == (
        "2026-03-29, Europe/Berlin: the clock goes forward from 02:00 to 03:00; "
        "what is due at 02:30 runs once, at 03:00"
    )


@pytest.mark.parametrize(
    ("zone", "after", "told"),
    [
        (  # a whole day was left out
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            (
                "2011-12-30, Pacific/Apia: the clock goes forward from 00:00 to 2011-12-31 00:00; "
                "what is due at 00:00 runs once, at 2011-12-31 00:00"
            ),
        ),
        (
            "America/Sao_Paulo",
            "2018-02-17T12:00:00Z",
            (
                "2018-02-17, America/Sao_Paulo: the clock goes back from 2018-02-18 00:00 to 23:00; "
                "what is due at 23:30 comes twice and runs the first time only"
            ),
        ),
    ],
)
def test_a_change_over_midnight_is_told_with_dates(zone: str, after: str, told: str) -> None:
    cron = "0 0 * * *" if zone == "Pacific/Apia" else "30 23 * * *"
    assert _preview({"cron": cron, "timezone": zone}, after).notes[0] == told


@pytest.mark.parametrize(
    ("cron", "dst", "effect"),
    [
        ("30 2 * * *", {"gap": "skip"}, "02:30 does not run"),
        ("*/15 * * * *", {}, "02:00, 02:15, 02:30 and so on does not run"),
        ("0,30 */2 * * *", {}, "02:00, 02:30 does not run"),
        ("15 30 2 * * *", {}, "02:30:15 runs once, at 03:00"),
    ],
)
def test_what_a_gap_does(cron: str, dst: Mapping[str, str], effect: str) -> None:
    body = {"cron": cron, "timezone": "Europe/Berlin", "dst": dst}
    (note,) = _preview(body, "2026-03-28T22:00:00Z", 40).notes[:1]
    assert note.endswith(f"the clock goes forward from 02:00 to 03:00; what is due at {effect}")


@pytest.mark.parametrize(
    ("cron", "dst", "effect"),
    [
        ("30 2 * * *", {}, "02:30 comes twice and runs the first time only"),
        ("30 2 * * *", {"fold": "second"}, "02:30 comes twice and runs the second time"),
        ("30 2 * * *", {"fold": "both"}, "02:30 comes twice and runs both times"),
        ("*/30 * * * *", {}, "02:00, 02:30 comes twice and runs both times"),
    ],
)
def test_what_an_overlap_does(cron: str, dst: Mapping[str, str], effect: str) -> None:
    body = {"cron": cron, "timezone": "Europe/Berlin", "dst": dst}
    (note,) = _preview(body, "2026-10-24T22:00:00Z", 20).notes[:1]
    assert note.startswith("2026-10-25, Europe/Berlin: the clock goes back from 03:00 to 02:00;")
    assert note.endswith(f"what is due at {effect}")


@pytest.mark.parametrize(
    ("cron", "zone", "after"),
    [
        ("30 4 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z"),  # not at that hour
        ("30 2 * * *", "Europe/Berlin", "2026-06-01T12:00:00Z"),  # not in those days
        ("30 2 * * *", "UTC", "2026-03-27T12:00:00Z"),
    ],
)
def test_a_change_that_touches_nothing_is_not_told(cron: str, zone: str, after: str) -> None:
    assert _preview({"cron": cron, "timezone": zone}, after).notes == []


def test_remarks_are_few_and_soon() -> None:
    yearly = {"cron": "30 2 25-31 3 */7", "timezone": "Europe/Berlin"}  # the day of the change
    found = _preview(yearly, "2026-01-01T00:00:00Z", 100)
    assert len(found.fire_times) == 100
    assert len([note for note in found.notes if "clock" in note]) == 10


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"cron": "0 * * * *"}, True),
        ({"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, True),
        ({"every": 3600, "start_at": "2026-06-01T00:00:00Z"}, True),
        ({"cron": "0 * * * *", "jitter": 30}, False),
        ({"cron": "*/15 * * * *"}, False),
        ({"cron": "17 * * * *"}, False),
        ({"every": 3600, "start_at": "2026-06-01T00:07:00Z"}, False),
    ],
)
def test_the_herd_at_the_full_hour(body: Mapping[str, object], told: bool) -> None:
    notes = _preview(body, "2026-06-01T00:30:00Z", 8).notes
    assert any(":00" in note for note in notes) is told


def test_a_schedule_that_ends() -> None:
    body = {"every": 60, "end_at": "2026-06-01T00:02:30Z"}
    found = _preview(body, "2026-06-01T00:00:00Z", 5)
    assert len(found.fire_times) == 2
    assert found.notes == ["the schedule ends after these"]
