"""Finds Node.js and redis-cli on this machine. As a program: ends with 1 if one of them is missing."""

import re
import shutil
import subprocess
import sys

_NODE_OLDEST = 18


def has_node() -> bool:
    """Whether there is a Node.js that is new enough."""
    path = shutil.which("node")
    if path is None:
        return False
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)", said.stdout)
    return found is not None and int(found[1]) >= _NODE_OLDEST


def has_redis_cli() -> bool:
    """Whether there is a command line of Redis or Valkey."""
    return any(shutil.which(name) for name in ("redis-cli", "valkey-cli"))


if __name__ == "__main__":
    sys.exit(not (has_node() and has_redis_cli()))
