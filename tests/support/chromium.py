"""Finds a Chromium on this machine. As a program: ends with 1 if there is none."""

import os
import shutil
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


def find() -> str | None:
    """Its path: of `CHROMIUM`, of the system, or of those that `playwright install` has brought."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    if _MAC.exists():
        return str(_MAC)
    return _of_playwright()


def _of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if path and Path(path).exists() else None


if __name__ == "__main__":
    sys.exit(find() is None)
