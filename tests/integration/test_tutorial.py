"""The tutorial, typed as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from processes import Processes

from duly.nodes.client import SyncClient

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
# What a reader waits out by the clock is waited for here until it is so.
UNTIL_RETRIED = 'until duly runs "$thirteen" | grep -q completed; do sleep 0.2; done'


def blocks(language: str) -> list[str]:
    """The page's code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_tutorial(seeded_folder: Path, tmp_path: Path, processes: Processes) -> None:
    handler, program = blocks("python")
    (tmp_path / "receipts.py").write_text(handler)
    (tmp_path / "order.py").write_text(program)
    up = processes.python(
        "-m", "duly", "up", "--data", seeded_folder, "--port", "0", "--worker", "receipts:worker",
        env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    api = up.wait_for_line(r"^Ready\. API (http://127\.0\.0\.1:\d+) ", 120)[1]
    typed = "".join(blocks("sh"))
    assert typed.count("sleep 8\n") == 1
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", typed.replace("sleep 8", UNTIL_RETRIED)],
        cwd=tmp_path, env={**os.environ, "DULY_URL": api, "PATH": path},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert blocks("text")[1] in done.stdout
    up.wait_for_line("receipt for order 1 to ada@example.org")
    failed, completed = "failed .*the mail server does not answer", "attempt 2 .*completed"
    assert re.search(rf"^{completed}.*\n^attempt 1 .*{failed}", done.stdout, re.MULTILINE)
    with SyncClient(api) as client:
        (misfit,) = client.list(status="failed")
        (minutely,) = client.list(periodic=True)
    assert (misfit.payload, misfit.retry_count) == ({"number": "one"}, 0)
    assert minutely.status == "cancelled"
