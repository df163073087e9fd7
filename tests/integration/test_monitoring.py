"""The alert rules and the dashboard of docs/monitoring: every metric in them is one that a node has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from node_rig import RunningNode
from scraping import exposed

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
ALERTS, DASHBOARD = FOLDER / "alerts.yaml", FOLDER / "grafana.json"

_METRIC = re.compile(r"\bduly_\w+")
_PART = re.compile(r"_(bucket|sum|count)$")
_LABEL = re.compile(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)")
_LABELS = {
    "part",
    "stage",
    "le",
    "queue",
    "status",
    "outcome",
    "change",
    "statement",
    "job",
    "state",
}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def alerts() -> list[str]:
    """The text of each rule."""
    return re.split(r"^      - alert: ", ALERTS.read_text(), flags=re.MULTILINE)[1:]


async def test_every_metric_exists_on_a_running_node(regional: RunningNode, redis_url: str) -> None:
    known = await exposed(regional, redis_url)
    for text in (ALERTS.read_text(), *expressions()):
        assert {_PART.sub("", name) for name in _METRIC.findall(text)} - known == set()


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.split("\n")[0])
def test_a_rule_is_whole(rule: str) -> None:
    assert re.match(r"Duly\w+\n        expr: (\|\n          )?\S", rule)
    assert re.search(r"^        labels: \{severity: (warning|critical)\}$", rule, re.MULTILINE)
    assert re.search(r'^        annotations:\n          summary: ".+"$', rule, re.MULTILINE)
    keys = re.findall(r"^        (\w+):", rule, re.MULTILINE)
    assert keys in (["expr", "for", "labels", "annotations"], ["expr", "labels", "annotations"])
    expression = rule.split("expr:")[1].split("        labels:")[0]
    assert expression.count("(") == expression.count(")")
    assert set(_LABEL.findall(expression)) <= _LABELS


def test_names_of_rules_are_unique() -> None:
    names = [rule.split("\n")[0] for rule in alerts()]
    assert len(names) == len(set(names)) >= 15


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    places = [
        {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        for at in (panel["gridPos"] for panel in panels())
    ]
    assert sum(map(len, places)) == len(set().union(*places)), "panels lie on each other"
    for panel in panels():
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]
    for expression in expressions():
        assert expression.count("(") == expression.count(")")
        assert set(_LABEL.findall(expression)) <= _LABELS
