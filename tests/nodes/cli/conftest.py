"""Fixtures for the tests of the command line."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple

import anyio.to_thread
import pytest
from fake_api import FakeApi

from duly.nodes.cli import main


class Answer(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


Duly = Callable[..., Awaitable[Answer]]


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a command sets up for its process ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def duly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Duly:
    """Runs the command in a thread, so that a server in the test's loop can answer it."""
    for name in ("DULY_URL", "DULY_TOKEN", "DULY_DATABASE_URL", "DULY_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)

    async def run(*argv: object) -> Answer:
        try:
            code = await anyio.to_thread.run_sync(main, list(map(str, argv)))
        except SystemExit as error:
            code = int(error.code or 0)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A running API."""
    fake = FakeApi()
    await fake.server.start_server()
    yield fake
    await fake.server.close()
