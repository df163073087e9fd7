"""duly next."""

import json
from collections.abc import Sequence

import pytest

from duly.nodes.cli import parser

AFTER = "2026-03-27T12:00:00Z"


def test_fire_times_in_utc_and_on_the_zones_clock(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["next", "30 2 * * *", "--tz", "Europe/Berlin", "--after", AFTER, "--count", "2"]
    assert parser.main(argv) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "2026-03-28T01:30:00Z  Sat 2026-03-28 02:30:00 +0100",
        "2026-03-29T01:00:00Z  Sun 2026-03-29 03:00:00 +0200",
    ]
    assert err.startswith("note: 2026-03-29, Europe/Berlin: the clock goes forward")


def test_a_period_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["next", "--every", "PT90M", "--start-at", "2026-03-27T00:00:00+01:00", "-n", "2"]
    assert parser.main([*argv, "--after", AFTER, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "fire_times": ["2026-03-27T12:30:00Z", "2026-03-27T14:00:00Z"],
        "notes": [],
    }


def test_without_options_it_is_utc_from_now_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser.main(["next", "@hourly"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "must have either"),
        (["* * * * *", "--every", "60"], "not both"),
        (["* * *"], "cron: expected 5 fields"),
        (["0 0 30 2 *"], "cron: it can never fire"),
        (["* * * * *", "--tz", "Mars"], "timezone: 'Mars' is not a time zone"),
        (["--every", "60", "--tz", "UTC"], "timezone: goes with"),
        (["--every", "nan"], "every: a duration must be finite"),
        (["* * * * *", "--after", "soon"], "--after: expected an RFC 3339 time"),
        (["* * * * *", "--start-at", "soon"], "start_at: expected an RFC 3339 time"),
        (["* * * * *", "--count", "101"], "--count: at most 100"),
    ],
)
def test_what_is_asked_for_wrongly(
    argv: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parser.main(["next", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
