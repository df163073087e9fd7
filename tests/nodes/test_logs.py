"""Log lines as text and as JSON."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from duly.nodes.logs import configure


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Configures the root logger, logs at each level, answers what was written; undone after."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []

    def log(least: str, style: str) -> str:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        configure(least, style)
        logger = logging.getLogger("duly.test")
        for name in ("debug", "info", "warning"):
            getattr(logger, name)("a %s", "line\nin two")
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("it failed")
        return stream.getvalue()

    yield log
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_is_for_people(logged: Callable[[str, str], str]) -> None:
    text = logged("info", "text")
    assert "INFO    duly.test: a line" in text
    assert "DEBUG" not in text
    assert text.rstrip().endswith("ValueError: wrong")


def test_json_is_an_object_a_line(logged: Callable[[str, str], str]) -> None:
    lines = [json.loads(line) for line in logged("debug", "json").splitlines()]
    assert [line["level"] for line in lines] == ["debug", "info", "warning", "error"]
    assert lines[1]["logger"] == "duly.test"
    assert lines[1]["message"] == "a line\nin two"
    assert "exception" not in lines[1]
    assert lines[3]["exception"].endswith("ValueError: wrong")
    age = datetime.now(UTC) - datetime.fromisoformat(lines[0]["time"])
    assert abs(age.total_seconds()) < 60


def test_a_second_call_replaces_the_first(logged: Callable[[str, str], str]) -> None:
    logged("debug", "json")
    assert logged("error", "text").count("it failed") == 1
