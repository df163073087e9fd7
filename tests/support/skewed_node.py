"""`duly node` on a machine whose wall clock is wrong by TEST_SKEW_S seconds: `python -m skewed_node`."""

import os
import sys
import time

_SKEW_S = float(os.environ["TEST_SKEW_S"])
_time, _time_ns = time.time, time.time_ns


def skewed_time() -> float:
    """As `time.time`."""
    return _time() + _SKEW_S


def skewed_time_ns() -> int:
    """As `time.time_ns`."""
    return _time_ns() + round(_SKEW_S * 1e9)


if __name__ == "__main__":
    time.time, time.time_ns = skewed_time, skewed_time_ns
    from duly.nodes.cli import main  # not before: modules may keep what they import

    print(f"wall clock: {time.time():.0f}", flush=True)
    sys.exit(main(["node"]))
