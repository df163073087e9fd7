"""A worker's process does not have what it imported looked at by each collection of garbage."""

import subprocess
import sys
from pathlib import Path

MODULE = """
import gc
from duly.nodes.worker import Worker

class Telling(Worker):
    def run(self):
        print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0])

worker = Telling("redis://127.0.0.1:1/0")
"""


def test_what_it_imported_is_not_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / "worker_of_this_test.py").write_text(MODULE)
    command = [sys.executable, "-P", "-m", "duly", "worker", "worker_of_this_test:worker"]
    ran = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "True 5000\n", ran.stderr
