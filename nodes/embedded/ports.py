"""A server's port: the same one at every start of its folder, unless somebody else has taken it."""

import random
import socket
from pathlib import Path

# Below the range from which systems pick the ports of outgoing connections: in it, a client that
# retries a stopped server can be given the server's own port, connect to itself and keep it taken.
_LOWEST = 20_000
_HIGHEST = 32_000


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(record: Path) -> int:
    """The port noted in the file `record` if it is free, else a free one, which is then noted."""
    noted = record.read_text().strip() if record.exists() else ""
    if noted.isdecimal() and 0 < int(noted) < 65_536 and is_free(int(noted)):
        return int(noted)
    while True:
        port = random.randint(_LOWEST, _HIGHEST)
        if is_free(port):
            record.write_text(f"{port}\n")
            return port
