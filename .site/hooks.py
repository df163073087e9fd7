"""What the site needs beyond the pages: its navigation, and links to files outside docs/."""

import posixpath
import re
from pathlib import Path
from typing import Any

PARTS = ("Tutorial", "How-to guides", "Reference", "Explanation")
SOURCE = "https://github.com/duly-scheduler/duly/blob/main/"


def on_config(config: Any) -> Any:
    """Navigation: the links of the four parts of docs/index.md, in their order."""
    text = (Path(config.docs_dir) / "index.md").read_text()
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE))
    parts = [{part: re.findall(r"\]\(([\w/-]+\.md)\)", sections[part])} for part in PARTS]
    config.nav = ["index.md", *parts]
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """A link that leaves docs/ leads to the file in the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        return link[0] if path.startswith("docs/") else f"]({SOURCE}{path}{link[2]})"

    return re.sub(r"\]\((\.\./[^)#\s]+)(#[^)\s]*|)\)", outside, markdown)
