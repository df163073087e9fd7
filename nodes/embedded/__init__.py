"""A private PostgreSQL and a private Valkey for `duly up`, `duly demo` and the tests.

    with EmbeddedServers(Path("/var/lib/duly")) as servers:      # or `async with`
        servers.database_url, servers.redis_url

Both are real servers: the programs inside the wheels of `duly[embedded]`, or those of the machine.
They listen on 127.0.0.1 only, ask for a password, and keep all they write in one data folder:

    DIR/lock             held by the one supervisor of the folder
    DIR/password         of both servers, mode 0600
    DIR/postgres/        PostgreSQL's data          DIR/postgres.log   DIR/postgres.port
    DIR/valkey/          Valkey's append-only file  DIR/valkey.log     DIR/valkey.port
    DIR/bin/             copies of the programs, if the server's user cannot reach the originals

Started as root the servers run as an unprivileged user, which PostgreSQL insists on.

Reading order: pair, supervise, server, postgres, valkey, process, leftovers; then the small ones.
"""

from duly.nodes.embedded.errors import (
    EmbeddedError,
    FolderInUseError,
    NotInstalledError,
    StartError,
)
from duly.nodes.embedded.folder import default_data_dir
from duly.nodes.embedded.pair import EmbeddedServers
from duly.nodes.embedded.supervise import keep_running

__all__ = [
    "EmbeddedError",
    "EmbeddedServers",
    "FolderInUseError",
    "NotInstalledError",
    "StartError",
    "default_data_dir",
    "keep_running",
]
