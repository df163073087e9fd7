"""What becomes of a node as a process: its address, its end."""

import logging
import socket
from typing import NoReturn

import pytest

from duly.actors.runtime import Actor, Child, Mailbox, Supervisor
from duly.nodes import lifecycle
from duly.nodes.server import ListenError, check_address


class Hopeless(Actor[NoReturn]):
    """Crashes whenever it is started."""

    name = "hopeless"

    def __init__(self) -> None:
        super().__init__(Mailbox("hopeless", 1))

    async def started(self) -> None:
        raise RuntimeError("as always")


async def test_a_node_whose_parts_crash_again_and_again_gives_up_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor(
        "node",
        [Child("hopeless", Hopeless)],
        strategy="rest_for_one",
        max_restarts=1,
        within_s=30.0,
        stop_grace_s=1.0,
    )
    with caplog.at_level(logging.CRITICAL, "duly.node"):
        assert await lifecycle._serve(supervisor) == lifecycle.EXIT_CRASHED
    assert "giving up" in caplog.text
    assert "as always" in caplog.text


async def test_a_free_address_is_no_error_and_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    await check_address("127.0.0.1", port)
    await check_address("localhost", 0)
    socket.create_server(("127.0.0.1", port)).close()


async def test_an_address_that_is_not_to_be_had_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1 port {port}: "):
            await check_address("127.0.0.1", port)
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1 port 0: "):
        await check_address("192.0.2.1", 0)
