"""The user that the servers run as: PostgreSQL refuses to run as root.

Started by root they run as `$DULY_SERVER_USER`, else `postgres`, else `nobody`; a folder that already
holds data is served as its owner. No user is ever made, and no folder outside the data folder changed.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duly.nodes.embedded.errors import EmbeddedError

_USER_VARIABLE = "DULY_SERVER_USER"


@dataclass(frozen=True)
class Identity:
    """A user to run programs as; without `uid` and `gid` the one we run as ourselves."""

    name: str
    uid: int | None = None
    gid: int | None = None

    def popen_options(self) -> dict[str, Any]:
        """Keyword arguments of `subprocess.Popen` that switch to this user."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        """Make this user the owner of `path`."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, folder: Path) -> bool:
        """Whether this user surely may pass through `folder` and all its parents."""
        if self.uid is None:
            return True
        return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def server_identity(data: Path) -> Identity:
    """Who runs the servers whose PostgreSQL data folder is `data` (it need not exist yet).

    Raises EmbeddedError if we are root and no other user fits.
    """
    if os.geteuid() != 0:
        return Identity(name=f"user id {os.geteuid()}")
    if data.exists() and (stat := data.stat()).st_uid != 0:
        return Identity(name=f"user id {stat.st_uid}", uid=stat.st_uid, gid=stat.st_gid)
    return _unprivileged_user()


def _unprivileged_user() -> Identity:
    import pwd  # not on Windows, where the module must still import

    wanted = os.environ.get(_USER_VARIABLE)
    for name in (wanted,) if wanted else ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid == 0:
            break
        return Identity(name=f"user {name}", uid=entry.pw_uid, gid=entry.pw_gid)
    asked = f"{_USER_VARIABLE}={wanted} does not name one" if wanted else f"set {_USER_VARIABLE}"
    raise EmbeddedError(
        f"started as root, the servers need an unprivileged user to run as: {asked}"
    )
