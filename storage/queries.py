"""Named statements from sql/*.sql. A statement begins with `-- name: x` and ends at its `;`."""

import re
from functools import cache
from importlib.resources import files

_COMMENT = re.compile(r"^--(?! name: ).*\n", re.MULTILINE)
_NAMED = re.compile(r"^-- name: (\w+)\n(.*?);\s*$", re.MULTILINE | re.DOTALL)


@cache
def statements() -> dict[str, str]:
    """Every statement by name. Raises ValueError when two share a name."""
    found: dict[str, str] = {}
    for path in sorted(files("duly.storage.sql").iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".sql"):
            continue
        for name, text in _NAMED.findall(_COMMENT.sub("", path.read_text())):
            if name in found:
                raise ValueError(f"two statements are named {name}")
            found[name] = text
    return found
