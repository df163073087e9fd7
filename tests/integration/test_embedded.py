"""The embedded servers as `duly up` and the tests use them: real programs, real kills."""

import os
import signal
import socket
import stat
from pathlib import Path

import anyio
import asyncpg
import psutil
import pytest
from embedded_rig import count, quick, supervisor, write
from processes import Processes, is_running
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError
from servers import ServerFactory
from waiting import wait_for

from duly.nodes.embedded import (
    EmbeddedServers,
    FolderInUseError,
    StartError,
    keep_running,
    ports,
    process,
)
from duly.nodes.embedded.server import Server


async def test_starts_serves_stops_and_keeps_the_data(data_folder: Path) -> None:
    lines: list[str] = []
    async with EmbeddedServers(data_folder, progress=lines.append) as servers:
        first = servers.database_url, servers.redis_url
        await write(*first)
        alive = [servers.postgres.process, servers.valkey.process]
        assert [process.exit_code for process in alive] == [None, None]
    assert [process.exit_code for process in alive] == [0, 0]
    assert lines[0] == "PostgreSQL: making the data folder (only at the first start)"
    assert lines[1].startswith("PostgreSQL 18")
    assert lines[2].startswith("Valkey 9")

    async with EmbeddedServers(data_folder, progress=lines.append) as servers:
        assert (servers.database_url, servers.redis_url) == first  # the ports too
        assert await count(*first) == (1, 1)
    assert len(lines) == 5


async def test_is_durable_unless_told_otherwise(seeded_folder: Path) -> None:
    async with EmbeddedServers(seeded_folder) as servers:
        connection = await asyncpg.connect(servers.database_url, timeout=10)
        try:
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                assert await connection.fetchval("SELECT current_setting($1)", name) == "on"
        finally:
            await connection.close()
        async with Redis.from_url(servers.redis_url) as client:
            wanted = {
                "appendonly": "yes",
                "appendfsync": "everysec",
                "maxmemory-policy": "noeviction",
            }
            assert await client.config_get(*wanted) == wanted


async def test_keeps_everything_in_its_folder_and_its_secrets_closed(data_folder: Path) -> None:
    folder = data_folder / "made" / "here"
    async with quick(folder) as servers:
        names = {path.name for path in folder.iterdir()}
        logs = {"postgres.log", "valkey.log"}
        ports = {"postgres.port", "valkey.port"}
        assert names == {"lock", "password", "postgres", "valkey"} | logs | ports
        for name in ("password", *logs):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
        password = (folder / "password").read_text()
        for server in (servers.postgres, servers.valkey):
            assert password not in " ".join(psutil.Process(server.process.pid).cmdline())
        stranger = servers.redis_url.replace(password, "wrong")
        async with Redis.from_url(stranger) as client:
            with pytest.raises(AuthenticationError):
                await client.ping()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(servers.database_url.replace(password, "wrong"), timeout=10)


async def test_listens_on_loopback_only(seeded_folder: Path) -> None:
    async with quick(seeded_folder) as servers:
        for server in (servers.postgres, servers.valkey):
            listening = [
                connection.laddr
                for connection in psutil.Process(server.process.pid).net_connections()
                if connection.status == psutil.CONN_LISTEN
            ]
            assert [tuple(address) for address in listening] == [("127.0.0.1", server.port)]


async def test_survives_kill_9_of_servers_and_supervisor(
    seeded_folder: Path, processes: Processes
) -> None:
    child, database_url, redis_url, pids = supervisor(processes, seeded_folder)
    await write(database_url, redis_url)
    for pid in pids:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for member in family:
            member.kill()
    child.kill9()
    async with quick(seeded_folder) as servers:
        assert (servers.database_url, servers.redis_url) == (database_url, redis_url)
        assert await count(database_url, redis_url) == (1, 1)


async def test_stops_servers_left_over_by_a_killed_supervisor(
    seeded_folder: Path, processes: Processes
) -> None:
    child, database_url, redis_url, pids = supervisor(processes, seeded_folder)
    await write(database_url, redis_url)
    child.kill9()
    assert all(is_running(pid) for pid in pids)
    psutil.Process(pids[0]).suspend()  # a leftover that does not listen is stopped all the same
    lines: list[str] = []
    async with quick(seeded_folder, lines.append) as servers:
        assert not any(is_running(pid) for pid in pids)
        assert await count(servers.database_url, servers.redis_url) == (1, 1)
    assert f"PostgreSQL: stopped process {pids[0]}, left over in {seeded_folder}/postgres" in lines


async def test_starts_where_only_the_postmaster_was_killed(seeded_folder: Path) -> None:
    async with quick(seeded_folder) as servers:
        await write(servers.database_url, servers.redis_url)
        idle = await asyncpg.connect(servers.database_url, timeout=10)
        os.kill(servers.postgres.process.pid, signal.SIGKILL)  # its children may still be there
        await wait_for(lambda: not servers.postgres.alive, 60, "the postmaster's end")
        await anyio.to_thread.run_sync(servers.revive, servers.postgres)
        idle.terminate()
        assert await count(servers.database_url, servers.redis_url) == (1, 1)


async def test_a_stale_pid_file_does_not_prevent_a_start(seeded_folder: Path) -> None:
    async with quick(seeded_folder) as servers:
        servers.postgres.kill9()
        pid_file = seeded_folder / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines(keepends=True)
        # As after a restart of a container: the pid now belongs to another program of that user.
        pid_file.write_text("".join([f"{servers.valkey.process.pid}\n", *lines[1:]]))
        await anyio.to_thread.run_sync(servers.revive, servers.postgres)
        assert servers.valkey.alive


async def test_a_folder_has_one_supervisor(seeded_folder: Path, processes: Processes) -> None:
    child, database_url, redis_url, _ = supervisor(processes, seeded_folder)
    with pytest.raises(FolderInUseError, match=rf"in use by process {child.pid}.*--data"):
        await anyio.to_thread.run_sync(quick(seeded_folder).start)
    await write(database_url, redis_url)  # the first goes on unharmed


def test_ctrl_c_reaches_the_supervisor_only(seeded_folder: Path, processes: Processes) -> None:
    child, _, _, pids = supervisor(processes, seeded_folder)
    child.signal_group(signal.SIGINT)
    child.wait_for_line("^interrupted$")
    assert all(is_running(pid) for pid in pids)
    assert len({child.pid, *map(os.getpgid, pids)}) == 3


async def test_a_taken_port_is_replaced(seeded_folder: Path) -> None:
    async with quick(seeded_folder) as servers:
        old = servers.postgres.port, servers.valkey.port
        await write(servers.database_url, servers.redis_url)
    with socket.socket() as first, socket.socket() as second:
        for taken, port in zip((first, second), old, strict=True):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
        async with quick(seeded_folder) as servers:
            new = servers.postgres.port, servers.valkey.port
            assert not set(old) & set(new)
            assert await count(servers.database_url, servers.redis_url) == (1, 1)


def test_a_port_lost_in_a_race_is_replaced(
    seeded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        choices = iter([taken.getsockname()[1]])  # free when it was chosen, it seems
        choose = ports.choose
        monkeypatch.setattr(ports, "choose", lambda record: next(choices, None) or choose(record))
        with quick(seeded_folder) as servers:
            assert servers.postgres.port != taken.getsockname()[1]


def test_a_large_log_is_put_aside_at_the_next_start(
    seeded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick(seeded_folder) as servers:
        log = servers.valkey.log
    old = log.read_text()
    monkeypatch.setattr(process, "_LOG_LIMIT_BYTES", len(old) - 1)
    with quick(seeded_folder):
        assert log.with_name("valkey.log.1").read_text() == old
        assert old not in log.read_text()


async def test_pause_resume_and_kill(make_servers: ServerFactory) -> None:
    servers = make_servers()
    connection = await asyncpg.connect(servers.database_url, timeout=10)
    try:
        servers.postgres.pause()
        with pytest.raises(TimeoutError):
            await connection.fetchval("SELECT 1", timeout=0.2)
        assert servers.postgres.alive
        servers.postgres.resume()
    finally:
        connection.terminate()
    async with Redis.from_url(servers.redis_url) as client:
        servers.valkey.pause()
        with pytest.raises(TimeoutError), anyio.fail_after(0.2):
            await client.ping()
        servers.valkey.resume()
    await write(servers.database_url, servers.redis_url)
    for server in (servers.postgres, servers.valkey):
        server.kill9()
        assert server.process.exit_code == -signal.SIGKILL
        server.restart()
    assert await count(servers.database_url, servers.redis_url) == (1, 1)


async def test_keep_running_brings_back_what_ended(make_servers: ServerFactory) -> None:
    servers = make_servers()
    await write(servers.database_url, servers.redis_url)
    both: tuple[Server, ...] = (servers.postgres, servers.valkey)
    killed = [server.process for server in both]
    async with anyio.create_task_group() as group:
        group.start_soon(keep_running, servers)
        for server in both:
            server.kill9()
        await wait_for(
            lambda: all(
                server.alive and server.process is not old
                for server, old in zip(both, killed, strict=True)
            ),
            20,
            "new processes",
        )
        connected = await wait_for(
            lambda: count(servers.database_url, servers.redis_url),
            20,
            "both servers to answer",
            ignore=(OSError, asyncpg.PostgresError, RedisError),
        )
        assert connected == (1, 1)
        group.cancel_scope.cancel()


async def test_a_cancelled_start_leaves_nothing_behind(data_folder: Path) -> None:
    started = anyio.Event()
    loop_token = anyio.lowlevel.current_token()

    def progress(line: str) -> None:
        anyio.from_thread.run_sync(started.set, token=loop_token)

    async def run() -> None:
        async with quick(data_folder, progress):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await started.wait()  # initdb is next
        group.cancel_scope.cancel()
    assert not [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if str(process.info["cwd"]).startswith(str(data_folder))
    ]
    async with quick(data_folder) as servers:  # the folder is free, and no half-made data is used
        await write(servers.database_url, servers.redis_url)


def test_one_object_runs_once(data_folder: Path) -> None:
    servers = quick(data_folder)
    with pytest.raises(StartError, match="not been started"):
        _ = servers.database_url
    servers.stop()
    with pytest.raises(StartError, match="have been stopped"):
        servers.start()
