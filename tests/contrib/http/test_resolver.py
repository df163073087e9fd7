"""Names are looked up apart from everything else, and not too many at a time."""

import asyncio
import socket
import threading
from typing import Any

import pytest
from waiting import wait_for

from duly.contrib.http import resolver
from duly.contrib.http.resolver import Resolver

WAIT_S = 60.0


async def test_a_name_server_that_is_silent_holds_up_no_more_than_look_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo
    go_on = threading.Event()
    asked: list[str] = []

    def look_up(host: Any, *args: Any, **options: Any) -> Any:
        if host != "slow.example":
            return real(host, *args, **options)
        asked.append(host)
        go_on.wait(WAIT_S)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(resolver, "LOOKUPS_MAX", 4)
    names = Resolver()
    try:
        waiting = [asyncio.create_task(names.resolve("slow.example", 80)) for _ in range(10)]
        await wait_for(lambda: len(asked) == 4, WAIT_S, "as many look-ups as there may be")
        for task in waiting:  # their deadlines are over; the threads go on
            task.cancel()
        await asyncio.wait(waiting)
        last = asyncio.create_task(names.resolve("127.0.0.1", 80))
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)  # as everybody does
        assert found
        assert not last.done()
        assert len(asked) == 4
        go_on.set()
        (answer,) = await asyncio.wait_for(last, WAIT_S)
        assert (answer["host"], answer["port"]) == ("127.0.0.1", 80)
    finally:
        go_on.set()
        await names.close()


@pytest.mark.parametrize("name", ["nothing.invalid", "a" * 64 + ".example", "a..b"])
async def test_what_is_not_found_is_an_os_error(name: str) -> None:
    names = Resolver()
    with pytest.raises(OSError, match=r"."):
        await names.resolve(name, 80)
    await names.close()
