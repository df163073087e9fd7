"""A worker module that reads DULY_REDIS_URL, which is not set, ends in one line."""

import sys
from pathlib import Path

import pytest

from duly.nodes.cli import main


def test_the_missing_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = 'import os\n\nurl = os.environ["DULY_REDIS_URL"]\n'
    (tmp_path / "worker_of_this_test.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_REDIS_URL", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["worker", "worker_of_this_test:worker"]) == 2
    assert "DULY_REDIS_URL is not set" in capsys.readouterr().err
