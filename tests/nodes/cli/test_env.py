"""duly env."""

import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Duly = Callable[..., Awaitable[Any]]


async def test_it_says_where_everything_is(duly: Duly, tmp_path: Path) -> None:
    urls = {
        "api": "http://127.0.0.1:1",
        "database": "postgresql://u:$a'b@h/d",
        "redis": "unix:///r",
    }
    (tmp_path / "urls.json").write_text(json.dumps(urls))
    said = (await duly("env", "--data", str(tmp_path))).out
    assert shlex.split(said) == [
        "export", "DULY_URL=http://127.0.0.1:1",
        "export", "DULY_DATABASE_URL=postgresql://u:$a'b@h/d",
        "export", "DULY_REDIS_URL=unix:///r",
    ]  # fmt: skip


async def test_without_a_running_one_it_says_what_is_missing(duly: Duly, tmp_path: Path) -> None:
    made = await duly("env", "--data", str(tmp_path))
    assert made.code == 1
    assert "is `duly up` running, and ready, with this --data?" in made.err
    assert made.out == ""


async def test_a_file_that_is_none_of_ours_is_said(duly: Duly, tmp_path: Path) -> None:
    for text in ("", "[]", '{"api": "http://127.0.0.1:1"}'):
        (tmp_path / "urls.json").write_text(text)
        made = await duly("env", "--data", str(tmp_path))
        assert (made.code, made.out) == (1, "")
        assert "urls.json is not what `duly up` writes" in made.err
