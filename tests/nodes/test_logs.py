"""Log lines as text and as JSON."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import UTC, datetime

import pytest

from duly.nodes.logs import about, configure


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


def test_fields_follow_the_text_and_are_members_of_the_object(
    logged: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged("error", "text")
    stream = io.StringIO()
    logger = logging.getLogger("duly.test")
    for style in ("text", "json"):
        monkeypatch.setattr("sys.stderr", stream)
        configure("info", style)
        logger.info("said", extra={"task_id": "x", "slot": 7, "colour": "red"})
        context = copy_context()
        context.run(about.set, {"task_id": "y", "token": 3})
        context.run(logger.info, "in a handler")
        context.run(logger.info, "more exact", extra={"task_id": "z"})
    text, json_lines = stream.getvalue().splitlines()[:3], stream.getvalue().splitlines()[3:]
    assert text[0].endswith("duly.test: said task_id=x slot=7")
    assert text[1].endswith("duly.test: in a handler task_id=y token=3")
    assert text[2].endswith("duly.test: more exact task_id=z token=3")
    lines = [json.loads(line) for line in json_lines]
    assert [(line.get("task_id"), line.get("token"), line.get("slot")) for line in lines] == [
        ("x", None, 7), ("y", 3, None), ("z", 3, None),
    ]  # fmt: skip
    assert "colour" not in lines[0]
