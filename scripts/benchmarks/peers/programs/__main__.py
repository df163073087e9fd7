"""Run a peer's program. See the package."""

import importlib
import os
import signal
import sys
import threading


def _end_with_the_bench() -> None:
    """Kill this worker and its children when standard input closes: the bench is gone."""
    while os.read(0, 1):  # unbuffered: a fork must not inherit a lock that this thread holds
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Read name and verb."""
    name, verb = sys.argv[1:]
    if verb == "work":
        threading.Thread(target=_end_with_the_bench, daemon=True).start()
    importlib.import_module(f"benchmarks.peers.programs.{name}_program").main(verb)


if __name__ == "__main__":
    main()
