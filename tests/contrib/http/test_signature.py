"""What a server is sent, and that it can check whence it came as the documentation says."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delivery_rig import LOOPBACK, SECRET, a_context, deliver
from hostile_server import Got, answers, hostile

from duly.contrib import http
from duly.contrib.http.signature import sign

PAGE = (Path(__file__).parents[3] / "docs" / "http-targets.md").read_text()
OTHER = SECRET[::-1]
BODY = 'bödy\x00"'.encode()

Check = Callable[[str, str, bytes, str], bool]


def block(language: str) -> str:
    """The first code block of the page in this language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def in_python(header: str, key: str, body: bytes, secret: str) -> bool:
    names: dict[str, Any] = {}
    exec(compile(block("python"), "http-targets.md", "exec"), names)  # noqa: S102 - our own page
    return bool(names["is_from_duly"](header, key, body, secret))


def node() -> str:
    """Node.js: the machine's, or the one that Playwright brings."""
    found = shutil.which("node")
    if found is None:
        from playwright._impl._driver import compute_driver_executable

        found = str(compute_driver_executable()[0])
    return found


def in_javascript(header: str, key: str, body: bytes, secret: str) -> bool:
    call = (
        "const [header, key, body, secret] = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        "console.log(isFromDuly(header, key, Buffer.from(body, 'hex'), secret));"
    )
    done = subprocess.run(
        [node(), "-e", block("js") + call],
        input=json.dumps([header, key, body.hex(), secret]),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return {"true\n": True, "false\n": False}[done.stdout]


@pytest.mark.parametrize("check", [in_python, in_javascript])
def test_the_check_of_the_docs(check: Check) -> None:
    now_s = int(time.time())
    header = sign([SECRET, OTHER], "id.1", BODY, now_s)
    digest = header.rpartition("=")[2]
    assert check(header, "id.1", BODY, SECRET)
    assert check(header, "id.1", BODY, OTHER)  # while one is replaced, both are right
    assert not check(header, "id.1", BODY, "x" * 32)
    assert not check(header, "id.2", BODY, SECRET)
    assert not check(header, "id.1", BODY + b" ", SECRET)
    assert not check(sign([SECRET], "id.1", BODY, now_s - 400), "id.1", BODY, SECRET)
    assert not check(sign([SECRET], "id.1", BODY, now_s + 400), "id.1", BODY, SECRET)
    for wrong in ("", "x", f"v1={digest}", f"t=,v1={digest}", f"t=x,v1={digest}",
                  f"t={now_s}", f"t={now_s},v1=", f"t={now_s},v1=zz", f"t={now_s},v1",
                  f"t={now_s},t={now_s},v1={digest}", f"t={now_s},v1={digest[:-2]}"):  # fmt: skip
        assert not check(wrong, "id.1", BODY, OTHER), wrong


def test_the_handler_of_the_docs_is_registered() -> None:
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[-1]
    names: dict[str, Any] = {}
    exec(compile(code, "http-targets.md", "exec"), names)  # noqa: S102 - our own page
    assert names["worker"].types == ["http"]


async def sent(settings: http.Settings | None = None, **fields: Any) -> Got:
    """The one request that a server gets."""
    async with hostile(answers()) as server:
        await deliver(
            f"http://127.0.0.1:{server.port}/x%2f?y=%2F&z=a/b", settings=settings, **fields
        )
    (got,) = server.got
    return got


async def test_a_request_as_the_server_gets_it() -> None:
    got = await sent(json={"a": 1}, headers={"X-Own": "1"})
    assert got.line == "POST /x%2f?y=%2F&z=a/b HTTP/1.1"
    assert got.body == b'{"a":1}'
    host = got.headers.pop("host")
    assert host.startswith("127.0.0.1:")
    assert re.fullmatch(r"duly/[0-9.]+", got.headers.pop("user-agent"))
    assert got.headers == {
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "content-length": "7",
        "content-type": "application/json",
        "duly-fencing-token": "42",
        "idempotency-key": "id1.1790000000000000",
        "x-own": "1",
    }


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_goes_without_a_body(method: str) -> None:
    got = await sent(method=method)
    assert (got.line.partition(" ")[0], got.body) == (method, b"")
    assert "content-type" not in got.headers


async def test_a_task_may_change_what_is_not_of_the_attempt() -> None:
    mine = {"user-agent": "me", "Accept-Encoding": "gzip", "content-type": "text/csv"}
    got = await sent(body="a,b", headers=mine)
    assert got.headers["user-agent"] == "me"
    assert got.headers["accept-encoding"] == "gzip"
    assert got.headers["content-type"] == "text/csv"


@pytest.mark.parametrize("size", [0, 250_000, 3_000_000])
async def test_a_body_of_any_length_is_signed_as_it_is_sent(size: int) -> None:
    settings = http.Settings(allow_networks=LOOPBACK, secrets=(SECRET, OTHER))
    got = await sent(settings, body_base64=b"\xff" * size)
    assert len(got.body) == size
    key = got.headers["idempotency-key"]
    for secret in (SECRET, OTHER):
        assert in_python(got.headers["duly-signature"], key, got.body, secret)


async def test_without_a_secret_there_is_no_signature() -> None:
    assert "duly-signature" not in (await sent()).headers


async def test_the_key_stays_and_the_token_grows() -> None:
    got = []
    async with hostile(answers()) as server:
        for attempt in (1, 2):
            context = a_context(attempt=attempt, token=attempt * 5)
            await deliver(f"http://127.0.0.1:{server.port}/", context=context)
            headers = server.got[-1].headers
            got.append((headers["idempotency-key"], headers["duly-fencing-token"]))
    assert got == [("id1.1790000000000000", "5"), ("id1.1790000000000000", "10")]
