"""The documentation says what the code says."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import settings_page

from duly.nodes.api import replies, wire
from duly.nodes.api.openapi import document
from duly.nodes.settings import Settings
from duly.storage import keys
from duly.wheel.backoff import Backoff

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("README.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def words(page: str) -> set[str]:
    """Every name in a page that is set as code, also of lists such as `id`, `token`."""
    text = (ROOT / "docs" / page).read_text()
    return {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"\w+", code)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
    dead = [
        link for link in links if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert dead == []


def test_the_map_names_every_page() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"}
    assert [name for name in pages if f"({name})" not in text] == []


def test_every_crash_point_names_a_test_that_exists() -> None:
    points = [row for row in rows("correctness.md", "dies") if len(row) == 4]
    assert len(points) >= 20
    for *_, shown_by in points:
        found = re.fullmatch(r"\[`(test_\w+)`\]\((\S+)\)", shown_by)
        assert found is not None, shown_by
        code = (ROOT / "docs" / found[2]).read_text()
        assert re.search(rf"^(async )?def {found[1]}\(", code, re.MULTILINE), shown_by


def test_the_readme_shows_the_examples_as_they_are() -> None:
    examples = [(ROOT / "examples" / name).read_text() for name in ("tour.py", "submit.py")]
    assert blocks(ROOT / "README.md", "python") == examples


def test_the_worker_of_the_docs_registers_its_handlers() -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    for code in blocks(ROOT / "docs" / "worker-sdk.md", "python"):
        exec(compile(code, "worker-sdk.md", "exec"), names)  # noqa: S102 - our own page
    assert names["worker"].types == ["checksum", "email.send", "transfer"]


async def test_the_first_test_of_the_docs_passes() -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(blocks(ROOT / "docs" / "testing.md", "python")[0], "testing.md", "exec"), names)  # noqa: S102
    await names["test_a_reminder_is_sent_the_next_day"]()


# Settings


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under the head that begins with `heading`."""
    lines = iter((ROOT / "docs" / page).read_text().splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            break
    next(lines)
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


@pytest.mark.parametrize("name", settings_page.TABLES)
def test_the_tables_of_settings_are_those_of_the_code(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    assert settings_page.page(name, text) == text, "write it anew: scripts/settings_page.py"


def test_a_table_that_has_no_place_is_missed() -> None:
    with pytest.raises(
        ValueError, match=r"docs/settings\.md has no place for the table of settings"
    ):
        settings_page.page("settings.md", "# Settings")


def test_the_table_of_settings_leaves_out_nothing() -> None:
    table = {row[0].strip("`"): row for row in rows("settings.md", "setting")}
    assert tuple(table) == Settings.__struct_fields__
    assert table["lease_ttl_s"] == [
        "`lease_ttl_s`", "`DULY_LEASE_TTL_S`", "number", "s", "`4`", "1 to 60",
        "Life of a slot's lease: how long a killed node's tasks wait, about.",
    ]  # fmt: skip
    assert [
        name for name, (*_, allowed, meaning) in table.items() if not allowed or not meaning
    ] == []


def test_every_variable_that_the_code_reads_is_there() -> None:
    code = "".join(path.read_text() for path in (ROOT / "nodes").rglob("*.py"))
    code += "".join(path.read_text() for path in (ROOT / "tests").glob("conftest.py"))
    used = set(re.findall(r"\bDULY_[A-Z_]*[A-Z]\b", code))
    text = (ROOT / "docs" / "settings.md").read_text()
    documented = set(re.findall(r"\bDULY_[A-Z_]*[A-Z]\b", text))
    assert used - documented == set()


# The API and the protocol


def test_every_call_is_documented() -> None:
    text = (ROOT / "docs" / "http-api.md").read_text()
    calls = [
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method in methods
    ]
    assert len(calls) >= 14
    assert [call for call in calls if call not in text] == []


@pytest.mark.parametrize(
    "shape",
    [
        wire.TaskSubmission,
        wire.TaskPatch,
        replies.TaskView,
        replies.RunView,
        wire.StartBody,
        wire.ReportBody,
        Backoff,
    ],
)
def test_every_field_is_documented(shape: type[msgspec.Struct]) -> None:
    assert set(shape.__struct_fields__) - words("http-api.md") == set()


@pytest.mark.parametrize("field", msgspec.structs.fields(Backoff), ids=lambda field: field.name)
def test_backoff_defaults_are_as_the_table_says(field: Any) -> None:
    text = (ROOT / "docs" / "http-api.md").read_text()
    shown = f'"{field.default}"' if isinstance(field.default, str) else f"{field.default:g}"
    assert f"| `{field.name}` | `{shown}` |" in text


def test_every_field_of_the_stream_is_documented() -> None:
    script = (ROOT / "storage" / "lua" / "publish.lua").read_text()
    added = re.search(r"'XADD', tasks, '\*',(.*?)\)\n", script, re.DOTALL)
    assert added is not None
    fields = re.findall(r"'(\w+)'", added[1])
    assert len(fields) == 9
    assert "{'traceparent', task[10]}" in script
    fields.append("traceparent")
    assert set(fields) - words("worker-protocol.md") == set()


def test_the_protocol_names_the_keys() -> None:
    text = (ROOT / "docs" / "worker-protocol.md").read_text()
    for key in (keys.tasks("q"), keys.inflight("q"), keys.reports("q")):
        assert f"`{key}`" in text
    assert keys.worker("{id}") in text
    assert keys.control("{id}") in text
    assert f"PX {keys.LIVENESS_TTL_MS}" in text
