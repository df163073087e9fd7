"""Make a server's programs usable by the server's user, and tell their version.

A virtual environment below root's home (mode 0700) is closed to that user, so its programs are copied
into the data folder.
"""

import re
import shutil
import subprocess
from pathlib import Path

from duly.nodes.embedded.errors import EmbeddedError
from duly.nodes.embedded.identity import Identity
from duly.nodes.embedded.locate import Programs

_VERSION = re.compile(r"(?:PostgreSQL\) |v=)(\d+(?:\.\d+)*)")
_UNNEEDED = shutil.ignore_patterns("include", "pkgconfig", "*.a")


def make_runnable(programs: Programs, identity: Identity, copies: Path) -> tuple[Programs, str]:
    """Programs that `identity` can run, copied into the folder `copies` if need be; and their version.

    Raises EmbeddedError if there is no way to run them.
    """
    try:
        return programs, read_version(programs.main, identity)
    except PermissionError as error:
        if not programs.bundle:
            raise EmbeddedError(f"{identity.name} cannot run {programs.main}: {error}") from error
    copied = _copy(programs, copies)
    try:
        return copied, read_version(copied.main, identity)
    except PermissionError as error:
        raise EmbeddedError(
            f"{identity.name}, who runs the servers, can reach neither {programs.main} nor a copy in "
            f"{copies}: choose a data folder that others may pass through with --data or DULY_HOME "
            "(for root the default is /var/lib/duly)"
        ) from error


def read_version(main: Path, identity: Identity) -> str:
    """`18.6` or `9.1.2`. Raises PermissionError if `identity` may not run it, else EmbeddedError."""
    try:
        done = subprocess.run(
            [main, "--version"],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env={"LC_ALL": "C"},
            timeout=20,
            **identity.popen_options(),
        )
    except PermissionError:
        raise
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(f"cannot run {main}: {error}") from error
    match = _VERSION.search(done.stdout)
    if match is None:
        said = (done.stderr or done.stdout).strip()
        raise EmbeddedError(f"{main} --version ended with code {done.returncode}: {said}")
    return match[1]


def _copy(programs: Programs, copies: Path) -> Programs:
    """Copy the bundle, keeping its inner layout: libraries are found by relative paths."""
    target = copies / programs.main.name
    copied = Programs(target / programs.main.relative_to(programs.bundle_root))
    stat = programs.main.stat()
    origin = f"{programs.main} {stat.st_mtime_ns} {stat.st_size}"
    note = target / "origin"
    if note.exists() and note.read_text() == origin:
        return copied
    draft = target.with_suffix(".new")
    for old in (draft, target):
        shutil.rmtree(old, ignore_errors=True)
    for part in programs.bundle:
        destination = draft / part.relative_to(programs.bundle_root)
        if part.is_dir():
            shutil.copytree(part, destination, symlinks=True, ignore=_UNNEEDED)
        elif part.exists():
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(part, destination)
    for folder in (copies, draft, *(path for path in draft.rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # whatever our umask is, the server's user must get in
    (draft / "origin").write_text(origin)
    draft.rename(target)
    return copied
