"""What `scripts/bench` makes of the numbers of its runs."""

import json

import pytest
from benchmarks.figures import (
    QUANTILES,
    Outcome,
    lag_figures,
    medians,
    rates,
    ratios,
    share,
)
from benchmarks.records import by_scenario, print_line, ratio_table, record, table


def test_a_share_is_a_value_that_was_measured() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert share(ordered, 0.0) == 1
    assert share(ordered, 0.5) == 51
    assert share(ordered, 0.99) == 100
    assert share(ordered, 1.0) == 100
    assert share([7.0], 0.99) == 7


def test_a_lag_below_zero_is_early() -> None:
    assert lag_figures([-0.5, 0.0, 3.0]) == {"p50_ms": 0, "p99_ms": 3, "max_ms": 3, "early": 1}


def test_times_in_which_nothing_started_count() -> None:
    assert rates([0.1, 0.2, 0.6]) == [8, 0, 4]
    assert rates([-0.2, 0.1]) == [8]
    assert rates([]) == []


def test_the_median_of_each_figure_is_over_the_runs_that_have_it() -> None:
    runs = [{"a": 1.0}, {"a": 9.0, "b": 4.0}, {"a": 2.0, "b": 6.0}]
    assert medians(runs) == {"a": 2, "b": 5}


def test_ratios_leave_out_what_one_side_lacks_or_has_none_of() -> None:
    ours = {"tasks_per_s": 300.0, "early": 1.0, "only_ours": 1.0}
    assert ratios(ours, {"tasks_per_s": 200.0, "early": 0.0}) == {"tasks_per_s": 1.5}


def test_a_record_holds_what_the_picture_needs() -> None:
    made = record("lag_500", Outcome({"p50_ms": 1.23456}, [1.0, 2.0], [0.0, 1.1]), "other")
    assert made["scenario"] == "lag_500"
    assert made["system"] == "other"
    assert made["figures"] == {"p50_ms": 1.23}
    assert made["tasks"] == 2
    assert len(made["lag_quantiles_ms"]) == len(QUANTILES)
    assert made["lag_quantiles_ms"][-1] == 2
    assert made["rates"] == [4, 0, 0, 0, 4]
    assert {"at", "cores", "load"} <= set(made)


def test_a_record_without_starts_has_no_curves() -> None:
    made = record("idle", Outcome({"statements_per_s": 3.0}))
    assert "tasks" not in made
    assert "lag_quantiles_ms" not in made
    assert "rates" not in made


def test_a_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(record("idle", Outcome({"statements_per_s": 3.0})))
    assert json.loads(capsys.readouterr().out)["figures"] == {"statements_per_s": 3.0}


def test_tables_show_medians_and_ratios() -> None:
    def run(system: str, rate: float) -> dict[str, object]:
        return record("drain", Outcome({"tasks_per_s": rate}), system)

    records = [run("duly", 400), run("slow", 100), run("duly", 600), run("slow", 100)]
    assert {name: len(runs) for name, runs in by_scenario(records)["drain"].items()} == {
        "duly": 2,
        "slow": 2,
    }
    assert table(records).splitlines()[1].split() == [
        *("drain", "duly", "tasks_per_s"),
        *("500.0", "400.0", "600.0"),
    ]
    assert ratio_table(records).splitlines()[1:] == [
        f"{'drain':<16}{'tasks_per_s':<24}{'slow':<15}{'500.0':>12}{'100.0':>12}{'5.00':>9}"
    ]
