"""C20: a node lives by PostgreSQL's clock and its own monotonic one; no code of it reads another."""

import ast
from pathlib import Path

import pytest

import duly.actors
import duly.nodes
import duly.storage
import duly.wheel

_WALL = {
    "time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
}  # fmt: skip
_SHOWS_IT = "nodes/api/metrics.py"  # how far the machine's clock is from PostgreSQL's
_NOT_OF_A_NODE = {"cli", "worker", "client", "embedded"}


def of_a_node() -> list[Path]:
    files = []
    for package in (duly.wheel, duly.storage, duly.actors, duly.nodes):
        folder = Path(str(package.__file__)).parent
        files += [
            file
            for file in sorted(folder.rglob("*.py"))
            if not _NOT_OF_A_NODE & set(file.relative_to(folder).parts)
        ]
    return files


def reads(text: str) -> set[str]:
    """What of `_WALL` a module names."""
    names = (
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )
    return _WALL.intersection(names)


def test_the_reader_sees_what_it_looks_for() -> None:
    assert reads("import time\nx = time.time\n") == {"time.time"}
    assert reads("from datetime import datetime\ndatetime.now(UTC)\n") == {"datetime.now"}
    assert reads("import time\ntime.monotonic()\n") == set()
    assert len(of_a_node()) > 50


@pytest.mark.parametrize("file", of_a_node(), ids=lambda file: file.name)
def test_c20_no_code_of_a_node_reads_the_wall_clock(file: Path) -> None:
    shown = {"time.time"} if file.as_posix().endswith(_SHOWS_IT) else set()
    assert reads(file.read_text(encoding="utf-8")) == shown
