"""Writes the tables of settings into the pages, from the settings themselves: .venv/bin/python -P scripts/settings_page.py

Each table stands between two comments, `<!-- NAME: … -->` and `<!-- end of NAME -->`; all else of a page is written by hand.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

import duly.contrib.http.settings as http
from duly.nodes.setting_reference import docstrings, references, shown_default
from duly.nodes.settings import OTHER_VARIABLES

DOCS: Final = Path(__file__).parents[1] / "docs"


def settings() -> str:
    """Every setting of a node."""
    heads = ("setting", "variable", "type", "unit", "default", "allowed", "meaning")
    return _table(
        heads,
        (
            (
                f"`{one.name}`",
                f"`{one.variable}`",
                one.kind,
                one.unit,
                one.default,
                one.allowed,
                one.meaning,
            )
            for one in references()
        ),
    )


def variables() -> str:
    """What else is read from the environment."""
    rows = ((f"`{name}`", by, meaning) for name, (by, meaning) in OTHER_VARIABLES.items())
    return _table(("variable", "read by", "meaning"), rows)


def http_settings() -> str:
    """The settings of the worker for HTTP targets."""
    meanings = docstrings(http)
    return _table(
        ("variable", "default", "meaning"),
        (
            (f"`DULY_HTTP_{field.name.upper()}`", _http_default(field), meanings[field.name])
            for field in msgspec.structs.fields(http.Settings)
        ),
    )


def _http_default(field: msgspec.structs.FieldInfo) -> str:
    if isinstance(field.default, tuple) and field.default:
        return f"`{','.join(field.default)}`"
    return shown_default(field) or "none"


TABLES: Final = {
    "settings.md": {"settings": settings, "variables": variables},
    "http-targets.md": {"http settings": http_settings},
}


def page(name: str, text: str) -> str:
    """The text of the page `name`, with its tables written anew. Raises ValueError if one has no place in it."""
    for table, write in TABLES[name].items():
        begin = f"<!-- {table}: written by scripts/settings_page.py -->\n"
        end = f"\n<!-- end of {table} -->"
        place = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)
        if not place.search(text):
            raise ValueError(f"docs/{name} has no place for the table of {table}")
        written = f"\n{write()}"
        text = place.sub(lambda _, written=written: written, text)  # type: ignore[misc]
    return text


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    """Write every page."""
    for name in TABLES:
        path = DOCS / name
        path.write_text(page(name, path.read_text()))


if __name__ == "__main__":
    main()
