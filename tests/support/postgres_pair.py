"""A primary PostgreSQL with a standby that follows it: to be killed, cut off, promoted and joined again.

Built beside a running embedded server, in the same data folder. For tests and plain scripts alike; all
calls block, so that async code makes them in a thread (`anyio.to_thread.run_sync`).
"""

import shutil
import subprocess
from typing import Any

import asyncpg
from databases import run_aside
from waiting import block_until

from duly.nodes.embedded.locate import find_postgres
from duly.nodes.embedded.postgres import Postgres
from duly.nodes.embedded.programs import make_runnable

_NAME = "duly_standby"
_FOLDER = "standby"
_TIMEOUT_S = 60.0
_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class PostgresPair:
    """Two servers with the same password: `primary` takes writes, `standby` follows it.

    `promote` makes the standby the primary; `rejoin` makes the server that was left behind its standby.
    Each of the two can be stopped, paused, killed (`kill9`) and started again (`restart`), on its port.
    """

    def __init__(self, primary: Postgres, *, synchronous: bool = True) -> None:
        """Give the running `primary` a standby, and wait until it streams.

        `synchronous`: a commit waits for the standby, see `synchronous`.
        """
        self.primary = primary
        self.standby = Postgres(primary.setting, _FOLDER)
        self._ports: tuple[int, ...] = (primary.port,)
        # A standby tries again this long after it lost its primary.
        self.execute("alter system set wal_retrieve_retry_interval = '200ms'")
        self.rejoin(synchronous=synchronous)
        self._ports = (primary.port, self.standby.port)

    @property
    def url(self) -> str:
        """URL of both, for clients that look for the one that takes writes. Stays the same."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        credentials, _, rest = self.primary.url.rpartition("@")
        database = rest.partition("/")[2]
        return f"{credentials}@{hosts}/{database}?target_session_attrs=read-write"

    def synchronous(self, on: bool) -> None:
        """Whether a commit on the primary waits until the standby has it, however long that takes."""
        self.execute(f"alter system set synchronous_standby_names = '{_NAME if on else ''}'")
        self.execute("select pg_reload_conf()")
        wanted = _NAME if on else ""

        def taken_over() -> bool:
            return bool(self.execute("show synchronous_standby_names") == wanted)

        block_until(taken_over, _TIMEOUT_S, "the setting is in force")

    def wait_streaming(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Until the standby follows the primary; if commits wait for it, until they can end."""

        def streams() -> bool:
            return bool(
                self.execute(
                    "select count(*) from pg_stat_replication where state = 'streaming' and"
                    f" application_name = '{_NAME}' and (sync_state = 'sync'"
                    " or current_setting('synchronous_standby_names') = '')"
                )
            )

        block_until(streams, timeout_s, "the standby streams", ignore=_TROUBLE)

    def promote(self) -> None:
        """Make the standby the primary; the one before is left as it is, running or not.

        The new primary waits for no standby.
        """
        self.primary, self.standby = self.standby, self.primary
        self.execute("alter system reset synchronous_standby_names")
        if not self.execute(f"select pg_promote(true, {_TIMEOUT_S:g})"):
            raise AssertionError(f"not promoted; see {self.primary.log}")
        block_until(
            lambda: not self.execute("select pg_is_in_recovery()"),
            _TIMEOUT_S,
            "the promoted server takes writes",
        )

    def rejoin(self, *, synchronous: bool = True) -> None:
        """Start the standby anew from a copy of the primary, and wait until it streams."""
        standby = self.standby
        if standby.alive:
            standby.kill9()
        shutil.rmtree(standby.data, ignore_errors=True)
        standby.data.mkdir(mode=0o700)
        identity = self.primary.setting.identity
        identity.give(standby.data)
        self.execute(
            f"select pg_create_physical_replication_slot('{_NAME}', true) where not exists"
            f" (select from pg_replication_slots where slot_name = '{_NAME}')"
        )
        self._copy()
        if standby.port:
            standby.restart()
        else:
            standby.start()
        self.synchronous(synchronous)
        self.wait_streaming()

    def close(self) -> None:
        """End the server that the pair has added; the first one is its owner's."""
        for server in (self.primary, self.standby):
            if server.data.name == _FOLDER and server.alive:
                server.kill9()

    def execute(self, statement: str, *, on: Postgres | None = None) -> Any:
        """Run a statement on the primary, or `on` another; the first value that it answers."""
        return run_aside(_execute((on or self.primary).url, statement))

    def _copy(self) -> None:
        setting, folder = self.primary.setting, self.standby.data
        programs, _ = make_runnable(find_postgres(), setting.identity, setting.folder / "bin")
        source = f"{self.primary.url}?application_name={_NAME}"
        options = ("--checkpoint=fast", "--no-sync", "--write-recovery-conf", f"--slot={_NAME}")
        self.standby.run_helper(
            [programs.helper("pg_basebackup"), "-D", ".", "-d", source, *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout_s=_TIMEOUT_S,
        )


async def _execute(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url, timeout=_TIMEOUT_S, command_timeout=2 * _TIMEOUT_S)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
