"""The charts of `scripts/bench --picture`, from given numbers; matplotlib itself is not installed here."""

from pathlib import Path

import pytest
from benchmarks.environments import CannotInstallError, environment
from benchmarks.figures import QUANTILES, Outcome
from benchmarks.picture import Chart, charts, draw, footer
from benchmarks.records import Record, record


def run(scenario: str, lags_ms: list[float], system: str = "duly", last_s: float = 0.3) -> Record:
    return record(scenario, Outcome({"early": 0}, sorted(lags_ms), [0.1, last_s]), system)


def by_title(records: list[Record]) -> dict[str, Chart]:
    return {chart.title: chart for chart in charts(records)}


def test_the_lags_of_one_system_share_axes() -> None:
    drawn = by_title([run("lag_100", [1.0, 3.0]), run("lag_500", [2.0, 2_500.0])])
    chart = drawn["Start after the due time"]
    assert list(drawn) == ["Start after the due time"]
    assert chart.x_is_logarithmic
    assert [line.name for line in chart.lines] == [
        "100 a second: p50 3.0 ms, p99 3.0 ms",
        "500 a second: p50 2.5 s, p99 2.5 s",
    ]
    assert len(chart.lines[0].xs) == len(chart.lines[0].ys) == len(QUANTILES)
    assert chart.lines[0].ys[-1] == 100


def test_the_systems_of_a_comparison_share_axes() -> None:
    drawn = by_title([run("lag_500", [1.0]), run("lag_500", [40.0], "other")])
    (chart,) = drawn.values()
    assert chart.title == "Start after the due time, 500 a second"
    assert [line.name.split(":")[0] for line in chart.lines] == ["duly", "other"]


def test_a_curve_is_the_median_of_the_runs() -> None:
    (chart,) = charts([run("lag_100", [1.0]), run("lag_100", [90.0]), run("lag_100", [5.0])])
    assert set(chart.lines[0].xs) == {5.0}


def test_a_start_before_its_time_is_at_the_edge_of_the_logarithmic_axis() -> None:
    (chart,) = charts([run("lag_100", [-3.0])])
    assert set(chart.lines[0].xs) == {0.1}


def test_rates_over_time_are_those_of_the_middle_run() -> None:
    (chart,) = charts([run("drain", [1.0], last_s=last) for last in (0.2, 0.9, 0.6)])
    assert chart.title == "Starts a second: drain"
    assert chart.lines[0].ys == [4, 0, 4]
    assert chart.lines[0].xs == [0.125, 0.375, 0.625]


def test_scenarios_in_which_nothing_runs_are_not_drawn() -> None:
    assert charts([record("idle", Outcome({"statements_per_s": 2.0}))]) == []


def test_the_footer_tells_the_machine_and_how_busy_it_was() -> None:
    first, second = run("lag_100", [1.0]), run("lag_100", [1.0])
    known = {"at": "2026-01-02T03:04:05+00:00", "cores": 2, "cpu": "Z80", "memory_gb": 24}
    text = footer([{**first, **known, "load": [0.2, 0, 0]}, {**second, **known, "load": [1, 0, 0]}])
    assert text.startswith(
        "2026-01-02, 2 cores (Z80), 24 GiB, load average 0.2 to 1.0; medians of 2 runs."
    )


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing to draw"):
        draw([record("idle", Outcome({"statements_per_s": 2.0}))], tmp_path / "image.svg")


def test_what_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(CannotInstallError, match=r"^no-such-peer: .*duly-no-such-thing"):
        environment("no-such-peer", ["duly-no-such-thing==1"], tmp_path)
