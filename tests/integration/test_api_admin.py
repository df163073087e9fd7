"""The admin page's files: who gets them, how they are kept, and what browsers are told about them."""

import re
from importlib.resources import files

import pytest
from node_rig import RunningNode

STATIC = "/admin/static/"


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/tasks", "/admin/tasks/some/where"])
async def test_each_view_is_the_page(node: RunningNode, path: str) -> None:
    answer = await node.call("GET", path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert '<main id="main"' in answer.body


async def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere(
    node: RunningNode,
) -> None:
    for path in ("/admin", f"{STATIC}main.js", f"{STATIC}page.css"):
        headers = (await node.call("GET", path)).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Server"] == "duly"


async def test_a_browser_that_has_a_file_is_not_sent_it_again(node: RunningNode) -> None:
    first = await node.call("GET", f"{STATIC}main.js")
    assert first.headers["Content-Type"].startswith("text/javascript")
    assert first.headers["Cache-Control"] == "no-cache"
    again = await node.call(
        "GET", f"{STATIC}main.js", None, {"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status, again.body) == (304, "")
    changed = await node.call("GET", f"{STATIC}main.js", None, {"If-None-Match": '"other"'})
    assert changed.status == 200


async def test_only_the_files_of_the_page_are_served(node: RunningNode) -> None:
    for name in (
        "nope.js", "__init__.py", "..%2fapi%2faccess.py", "../api/access.py", "views", "views/",
        "%2fetc%2fpasswd", "views%2f..%2fmain.js", "%00",
    ):  # fmt: skip
        answer = await node.call("GET", STATIC + name)
        assert answer.status == 404 or "<main" in answer.body, name
    assert (await node.call("POST", "/admin")).status == 405


def test_what_the_page_asks_for_is_there_and_is_ours() -> None:
    folder = files("duly.nodes.admin")
    page = (folder / "index.html").read_text()
    assert "<script>" not in page
    assert "style=" not in page
    for link in re.findall(r'(?:href|src)="([^"#]+)"', page):
        assert link == "/admin" or (folder / link.removeprefix(STATIC)).is_file(), link
    for module in [*folder.iterdir(), *(folder / "views").iterdir()]:
        if not module.name.endswith(".js"):
            continue
        text = module.read_text()
        assert "innerHTML" not in text, module.name
        assert not re.search(r"https?://", text), module.name
        inside = folder / "views" if "views/" in str(module) else folder
        for name in re.findall(r'(?:from|import) ?\(?"(\.[^"]+)"', text):
            assert (inside / name).is_file(), (module.name, name)
