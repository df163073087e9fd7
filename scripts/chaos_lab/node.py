"""A node whose wall clock can be moved: `python -m chaos_lab.node CLOCK [BUG …] -- node …`.

CLOCK is a file of eight bytes, a double: seconds to add to the wall clock, read at every look at it.
The node's code stays as it is; it finds another `time.time`. BUG: one of chaos_lab.mutations.
"""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_FORMAT: Final = "d"


def make_clock(path: Path) -> None:
    """A clock that is right."""
    path.write_bytes(struct.pack(_FORMAT, 0.0))


def set_clock(path: Path, offset_s: float) -> None:
    """Step the clock of the node that looks at `path`."""
    with path.open("r+b") as file:
        file.write(struct.pack(_FORMAT, offset_s))


def shift_time(path: Path) -> None:
    """From now on the wall clock of this process is off by what `path` says."""
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), struct.calcsize(_FORMAT))
    real, real_ns = time.time, time.time_ns

    def offset() -> float:
        return float(struct.unpack(_FORMAT, shared[:])[0])

    shifted: Callable[[], float] = lambda: real() + offset()
    time.time = shifted
    time.time_ns = lambda: real_ns() + round(offset() * 1e9)


def main(argv: list[str]) -> int:
    """Run `duly` with the arguments after `--`."""
    at = argv.index("--")
    shift_time(Path(argv[0]))
    from chaos_lab.mutations import plant
    from duly.nodes.cli import main as duly

    for bug in argv[1:at]:
        plant(bug)
    return duly(argv[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
