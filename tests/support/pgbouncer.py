"""A PgBouncer in transaction mode before the tests' PostgreSQL. As a program: ends with 1 if there is none."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

_CONFIG = """
[databases]
* = host={host} port={port} user={user} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
"""


def find() -> str | None:
    """Its path: of `PGBOUNCER`, or of the system, where it may not be in the path of plain users."""
    named = os.environ.get("PGBOUNCER", "pgbouncer")
    return shutil.which(named) or shutil.which(named, path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pooled(database_url: str, folder: Path, *, size: int) -> Iterator[str]:
    """URL of the same database through a PgBouncer that has at most `size` connections to it."""
    from waiting import block_until

    from duly.nodes.embedded.process import end_with_parent

    program = find()
    assert program, "there is no pgbouncer: see scripts/pooler"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    to = urlsplit(database_url)
    config = folder / "pgbouncer.ini"
    config.write_text(
        _CONFIG.format(
            host=to.hostname, port=to.port, user=to.username, password=to.password,
            listen=port, size=size,
        )
    )  # fmt: skip
    log = folder / "pgbouncer.log"
    as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *as_user, config],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - makes one system call
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", port)) == 0

    try:
        block_until(answers, 60, "an answer of PgBouncer", poll_s=0.01)
        yield f"postgresql://{to.username}:any@127.0.0.1:{port}{to.path}?pooler=transaction"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(find() is None)
