"""A Valkey (or Redis) of the kit's own, for the length of one run: with a password, and it keeps nothing."""

import asyncio
import contextlib
import secrets
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio

from duly.nodes.embedded import ports
from duly.nodes.embedded.errors import StartError
from duly.nodes.embedded.locate import find_valkey
from duly.nodes.embedded.process import end_with_parent
from duly.storage.redis import TROUBLE, call, connect

_START_S: Final = 30.0
_POLL_S: Final = 0.02


@contextlib.asynccontextmanager
async def own_server() -> AsyncIterator[str]:
    """Its URL. Raises EmbeddedError if there is no program or it does not start."""
    main = find_valkey().main
    with tempfile.TemporaryDirectory(prefix="duly-conformance-") as name:
        folder = Path(name)
        port = ports.choose(folder / "port")
        password = secrets.token_urlsafe()
        # In a folder that only this user can read, unlike a command line.
        settings = folder / "settings"
        settings.write_text(f'port {port}\nbind 127.0.0.1\nsave ""\nrequirepass {password}\n')
        with (folder / "log").open("wb") as log:
            server = await asyncio.create_subprocess_exec(
                str(main), str(settings), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=end_with_parent(),
            )  # fmt: skip
        try:
            url = f"redis://:{password}@127.0.0.1:{port}/0"
            if not await _answers(url, server):
                said = await anyio.Path(folder / "log").read_text(errors="replace")
                raise StartError(f"Valkey does not start: {said[-500:]}")
            yield url
        finally:
            with anyio.CancelScope(shield=True):
                server.kill()
                await server.wait()


async def _answers(url: str, server: asyncio.subprocess.Process) -> bool:
    client = connect(url, name="duly-conformance")
    try:
        with anyio.move_on_after(_START_S):
            while server.returncode is None:
                with contextlib.suppress(*TROUBLE):
                    await call(client, "PING", timeout_s=1.0)
                    return True
                await anyio.sleep(_POLL_S)
        return False
    finally:
        await client.aclose()
