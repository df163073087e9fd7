"""duly simulate, as a user sees it."""

import json
from pathlib import Path

import pytest

from duly.nodes.cli import main

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "schedules" / "team.toml")
FORTNIGHT = ["--from", "2026-10-20T00:00:00Z", "--to", "2026-11-03T00:00:00Z"]
OUTAGE = ["--outage", "2026-10-25T00:00:00Z..2026-10-25T06:30:00Z"]


def test_the_example_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", EXAMPLE, *FORTNIGHT, *OUTAGE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("from 2026-10-20T00:00:00Z to 2026-11-03T00:00:00Z: 3 schedules, ")
    assert any(line.split()[:2] == ["nightly-report", "14"] for line in lines)
    assert "fullest minutes" in lines
    assert any("comes twice and runs the first time only" in line for line in lines)
    assert any(
        "overrun skip (declared): due in it 7, run late 1, skipped 6" in line for line in lines
    )


def test_the_example_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", EXAMPLE, *FORTNIGHT, "--json", "--top", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schedules"]["nightly-report"]["runs"] == 14
    assert len(found["herds"]) == 1
    assert found["outage"] == []


def test_by_default_it_is_the_coming_week(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", EXAMPLE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedules"]["nightly-report"]["runs"] in (6, 7, 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "soon"], "--from: "),
        (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "--to must be later"),
        (["--outage", "2026-01-02T00:00:00Z"], "write FROM..TO"),
        (["--outage", "2026-01-02T00:00:00Z..2026-01-01T00:00:00Z"], "its end must be later"),
        (["--duration", "long"], "--duration: "),
    ],
)
def test_what_is_asked_for_wrongly(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", EXAMPLE, *options]) == 2
    assert said in capsys.readouterr().err
