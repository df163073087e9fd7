"""The account transfer of examples/, typed as its README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Processes

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "account_transfer"


def blocks(language: str) -> list[str]:
    """The code blocks of one language in the README."""
    readme = (FOLDER / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)


def test_the_books_are_right(
    seeded_folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = blocks("sh")
    go, start = first.splitlines()
    assert go == "cd examples/account_transfer"
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    options = start.replace(".duly", str(seeded_folder)).split()
    up = processes.python("-m", *options, "--port", "0")
    up.wait_for_line(r"^Ready\. ", 120)

    typed = second.replace(".duly", str(seeded_folder))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", typed], cwd=ROOT, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [done.stdout] == blocks("text")
