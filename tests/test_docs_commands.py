"""Every `duly` command that the pages show is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from duly.nodes.cli.parser import build

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("README.md"))


def shell(page: Path) -> str:
    """The page's shell code: fenced as `sh` or as nothing, or indented."""
    text = page.read_text()
    fenced = re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    without = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^ {4}(.+\n)", without, re.MULTILINE)
    return "".join([*fenced, *indented]).replace("\\\n", " ")


def commands(page: Path) -> list[list[str]]:
    """The arguments of each `duly` in the page's shell code, but not in synopses such as `[--port PORT]` or `…`."""
    found = []
    for line in shell(page).splitlines():
        if not re.search(r"(^|[(|;&=] ?|\w=\S+ )duly \w", line) or "[--" in line or " …" in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();|&<>")
        lexer.whitespace_split = True
        tokens = list(lexer)
        for at, token in enumerate(tokens):
            if token == "duly":
                rest = tokens[at + 1 :]
                ends = [i for i, one in enumerate(rest) if set(one) <= set("();|&<>")]
                found.append(rest[: ends[0]] if ends else rest)
    return found


def test_commands_are_found() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 35
    assert ["submit", "-q", "flaky"] in commands(ROOT / "README.md")
    assert ["queues"] in commands(ROOT / "docs" / "queues.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_line_takes_them(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build()
    wrong = []
    for argv in commands(page):
        try:
            parser.parse_args(argv)
        except SystemExit as ended:
            if ended.code:
                wrong.append((argv, capsys.readouterr().err))
    assert wrong == []
