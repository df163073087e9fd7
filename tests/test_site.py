"""The documentation builds as a site, with every page in it and no dead link or anchor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built so that any warning fails it."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable, "-P", "-m", "mkdocs", "build", "--strict",
            "--config-file", ROOT / ".site" / "mkdocs.yml", "--site-dir", folder,
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    places = [
        "." if str(page) == "index.md" else f"{page.with_suffix('')}/".removesuffix("index/")
        for page in pages
    ]
    assert [place for place in places if f'href="{place}"' not in home] == []
    for part in ("Tutorial", "How-to guides", "Reference", "Explanation"):
        assert part in home


def test_a_link_out_of_the_docs_leads_to_the_repository(site: Path) -> None:
    page = (site / "worker-sdk" / "index.html").read_text()
    source = "https://github.com/duly-scheduler/duly/blob/main/"
    assert f'href="{source}examples/account_transfer/README.md"' in page


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert 'src="http' not in text, page
        assert '<link rel="stylesheet" href="http' not in text, page
