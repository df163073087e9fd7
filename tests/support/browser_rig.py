"""A real Chromium on the admin page of a real node.

Every wait is for a condition, with a deadline that a loaded machine can keep. What the page logs as
an error (a policy violation too) fails the test.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from chromium import find
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

from duly.nodes.setting_values import Role
from duly.nodes.settings import Token

DEADLINE_MS = 60_000

expect.set_options(timeout=DEADLINE_MS)

SECRETS: dict[Role, str] = {
    "read": "r-secret", "payload-view": "p-secret", "submit": "s-secret", "admin": "a-secret",
}  # fmt: skip

TOKENS = tuple(
    Token(f"the-{role}", role, hashlib.sha256(secret.encode()).hexdigest())
    for role, secret in SECRETS.items()
)


@cache
def _executable() -> str:
    path = find()
    assert path is not None, "no Chromium: run scripts/browser"
    return path


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=_executable(),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=DEADLINE_MS,
        )
        try:
            yield browser
        finally:
            await browser.close()


class Site:
    """The page of one node; collects what browsers report of it as errors."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self.errors: list[str] = []
        self._contexts: list[BrowserContext] = []

    async def open(self, path: str = "/admin", *, role: Role | None = None, width: int = 1280,
                   dark: bool = False, zone: str = "Europe/Berlin") -> Page:  # fmt: skip
        """A new window, with a jar of its own; with `role` somebody is signed in."""
        context = await self._browser.new_context(
            base_url=self.url, viewport={"width": width, "height": 900 if width > 600 else 740},
            color_scheme="dark" if dark else "light", reduced_motion="reduce",
            timezone_id=zone, locale="en-GB",
        )  # fmt: skip
        self._contexts.append(context)
        context.set_default_timeout(DEADLINE_MS)
        page = await context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if role is not None:
            await sign_in(page, role)
        await page.goto(path)
        return page

    def _said(self, message: ConsoleMessage) -> None:
        # What a server refuses, Chromium calls an error too; the page shows it, and tests look for that.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    async def close(self) -> None:
        """Close every window."""
        for context in self._contexts:
            await context.close()


@asynccontextmanager
async def site(browser: Browser, url: str) -> AsyncIterator[Site]:
    """The page of the node at `url`; fails if it had errors."""
    made = Site(browser, url)
    try:
        yield made
    finally:
        await made.close()
    assert made.errors == []


async def sign_in(page: Page, role: Role) -> None:
    """Sign in by hand."""
    await page.goto("/admin")
    await page.get_by_label("Token").fill(SECRETS[role])
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("button", name="Sign out").wait_for()
