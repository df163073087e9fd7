"""The time zone of this machine, in which its cron reads crontabs."""

from collections.abc import Mapping
from pathlib import Path

from duly.wheel import zones

_ROOT = Path("/")


def local_zone(environ: Mapping[str, str], root: Path = _ROOT) -> str | None:
    """The IANA name: of the variable TZ, else of /etc/localtime, else of /etc/timezone.

    UTC if none of them is there; None if what is there has no name that Duly knows.
    """
    given = environ.get("TZ", "").removeprefix(":")
    if given:
        return _known(given)
    link = root / "etc" / "localtime"
    if link.is_symlink():
        return _known(str(link.resolve())) or _known(str(link.readlink()))
    listed = root / "etc" / "timezone"
    if listed.is_file():
        return _known(listed.read_text(errors="replace").strip())
    return None if link.exists() else "UTC"


def _known(name: str) -> str | None:
    name = name.rpartition("zoneinfo/")[2]
    return name if name in zones.names() else None
