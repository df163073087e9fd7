"""Virtual environments of their own for what only a benchmark needs: peers, and the picture.

They are kept under `build/benchmarks`, one for each name, and made anew when what they need changes.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent / "build" / "benchmarks"
_INSTALL_S = 600
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class CannotInstallError(Exception):
    """What is needed could not be installed; the message says what and why."""


def environment(name: str, requirements: Sequence[str], root: Path = _ROOT) -> Path:
    """The Python of the environment `name`, in which these requirements are installed.

    Takes up to ten minutes the first time. Raises CannotInstallError.
    """
    folder = root / name
    python, stamp = folder / "bin" / "python", folder / "benchmark-stamp"
    wanted = "\n".join((sys.version, *requirements))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(name, sys.executable, "-m", "venv", str(folder))
    _run(name, str(python), *_PIP, "install", "--quiet", "--root-user-action=ignore", *requirements)
    stamp.write_text(wanted)
    return python


def versions(python: Path, names: Sequence[str]) -> str:
    """What is installed there of these distributions, such as `celery 5.7.0, redis 8.1.0`."""
    code = "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    return _run("versions", str(python), "-c", code, *names).strip()


def _run(name: str, *command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstallError(f"{name}: {error}") from error
    if done.returncode != 0:
        raise CannotInstallError(f"{name}: {_reason(done.stderr) or shlex.join(command)}")
    return done.stdout


def _reason(said: str) -> str:
    """pip tells errors first, then warnings and notices."""
    lines = said.strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return " ".join(errors or lines[-1:])
