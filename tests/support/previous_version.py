"""The version before this one, out of the project's own history, so that both can run in one cluster."""

import io
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Final

PREVIOUS: Final = "b029640f23e6a585555bb1b8c3e3e605bde2949f"
"""The last commit of the version before. Nodes of it must be able to run beside those of this one.

Name another one whenever a version is released: the commit of the version that was the latest until then.
"""

_REPOSITORY: Final = Path(__file__).parents[2]
_INNER: Final = ("nodes", "actors", "wheel", "storage")  # as pyproject.toml has it
_TIMEOUT_S: Final = 60


def previous_version(folder: Path) -> Path:
    """Unpack the version before into `folder`; answers what to put first in PYTHONPATH to import it as `duly`.

    Its dependencies are those of our own environment. Raises RuntimeError if the history is not here.
    """
    git = ["git", "-c", "safe.directory=*", "-C", str(_REPOSITORY)]
    archive = [*git, "archive", "--format=tar", PREVIOUS, "duly", *_INNER]
    made = subprocess.run(archive, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if made.returncode:
        raise RuntimeError(
            f"the version before this one, commit {PREVIOUS}, cannot be had from the history of {_REPOSITORY}, "
            f"which this test needs (in a shallow clone: git fetch --unshallow): {made.stderr.decode().strip()}"
        )
    root = folder / "previous"
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as packed:
        packed.extractall(root, filter="data")
    for name in _INNER:
        (root / name).rename(root / "duly" / name)
    return root


def schema_of(root: Path) -> int:
    """Number of the newest migration in what `previous_version` has unpacked."""
    names = [path.name for path in (root / "duly" / "storage" / "migrations").iterdir()]
    return max(int(match[1]) for name in names if (match := re.match(r"(\d{4})_", name)))
