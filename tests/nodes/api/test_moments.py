"""Times in words."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from duly.nodes.api.moments import moment, span

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (59.4, "59 s"), (60, "1 min"),
        (61, "1 min 1 s"), (3599, "59 min 59 s"), (3600, "1 h"), (7500, "2 h 5 min"),
        (86_400, "1 d"), (90_000, "1 d 1 h"), (172_799, "1 d 23 h"), (172_800, "2 days"),
        (13 * 86_400, "13 days"), (31 * 86_400, "4 weeks"), (90 * 86_400, "3 months"),
        (400 * 86_400, "13 months"), (4779 * 86_400, "13 years"), (1e9, "32 years"),
    ],
)  # fmt: skip
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_moments() -> None:
    berlin = timezone(timedelta(hours=1))
    later = datetime(2026, 11, 30, 4, 5, 0, 900_000, tzinfo=berlin)
    assert moment(later, NOW) == "2026-11-30 03:05:00 UTC (in 5 min)"
    assert moment(NOW - timedelta(seconds=12), NOW) == "2026-11-30 02:59:48 UTC (12 s ago)"
    assert moment(NOW, NOW) == "2026-11-30 03:00:00 UTC (0.0 s ago)"
