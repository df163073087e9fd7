"""Named statements from sql/*.sql. A statement begins with `-- name: x` and ends at its `;`.

What several have in common is a part: `-- part: x a b` begins the text that `{x one two}` stands for, with
`one` for each `{a}` in it and `two` for each `{b}`. Either may be the name of a part, or text. Those of
parts.sql are for all files.
"""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_COMMENT = re.compile(r"^--(?! (?:name|part): ).*\n", re.MULTILINE)
_NAMED = re.compile(r"^-- (name|part): (\w+)((?: \w+)*)\n(.*?);\s*$", re.MULTILINE | re.DOTALL)
_USED = re.compile(r"\{([a-z]\w*(?: \$?\w+)*)\}")


class _Part(NamedTuple):
    takes: list[str]
    text: str


@cache
def statements() -> dict[str, str]:
    """Every statement by name. Raises ValueError when two share a name."""
    found: dict[str, str] = {}
    folder = files("duly.storage.sql")
    shared = (folder / "parts.sql").read_text()
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".sql") and path.name != "parts.sql":
            for name, text in parse(shared + path.read_text()).items():
                if name in found:
                    raise ValueError(f"two statements are named {name}")
                found[name] = text
    return found


def parse(source: str) -> dict[str, str]:
    """The statements of one file, with its parts put in.

    Raises ValueError when two share a name, and for text that is in none of them; LookupError for a part
    that there is not.
    """
    parts: dict[str, _Part] = {}
    found: dict[str, str] = {}
    source = _COMMENT.sub("", source)
    if lost := _NAMED.sub("", source).strip():
        raise ValueError(f"in no statement: {lost[:80]!r}")
    for kind, name, takes, text in _NAMED.findall(source):
        if "\n-- " in text:
            raise ValueError(f"the statement {name} does not end before the next one")
        if name in parts or name in found:
            raise ValueError(f"two statements are named {name}")
        if kind == "part":
            parts[name] = _Part(takes.split(), text)
        else:
            found[name] = text
    return {name: _expand(text, parts, {}) for name, text in found.items()}


def _expand(text: str, parts: dict[str, _Part], given: dict[str, str]) -> str:
    def put_in(match: re.Match[str]) -> str:
        name, *values = (given.get(word, word) for word in match[1].split())
        if name in parts:
            part = parts[name]
            return _expand(part.text, parts, dict(zip(part.takes, values, strict=True)))
        if match[1] not in given:
            raise LookupError(f"there is no part {name}")
        return name

    return _USED.sub(put_in, text)
