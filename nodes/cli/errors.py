"""How a command ends when it cannot go on."""

import sys
from typing import NoReturn


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong, and end the command."""
    print(f"duly: {message}", file=sys.stderr)
    raise SystemExit(code)
