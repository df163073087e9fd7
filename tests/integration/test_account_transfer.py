"""Examples with a worker beside `duly up`, typed as their READMEs say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Processes

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def blocks(example: str, language: str) -> list[str]:
    """The code blocks of one language in an example's README."""
    readme = (EXAMPLES / example / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", ["account_transfer", "shop"])
def test_the_books_are_right(
    seeded_folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    first, second = blocks(example, "sh")
    go, start = first.splitlines()
    assert go == f"cd examples/{example}"
    monkeypatch.chdir(EXAMPLES / example)
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
    assert [done.stdout] == blocks(example, "text")
