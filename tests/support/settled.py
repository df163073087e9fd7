"""Make a lease server count at once, as if it had kept its data for a long time."""

from duly.storage import keys
from duly.storage.redis import call, connect

_LIMIT_S = 5.0


async def settle(*urls: str) -> None:
    """Say so to these servers, in their own words."""
    for url in urls:
        client = connect(url, name="test-settle")
        try:
            said = await call(client, "INFO", "server", timeout_s=_LIMIT_S)
            run = said["run_id"] if isinstance(said, dict) else _run_id(said)
            await call(client, "SET", keys.LEASE_SINCE, f"{run} 0", timeout_s=_LIMIT_S)
        finally:
            await client.aclose()


def _run_id(said: bytes) -> str:
    lines = said.decode().splitlines()
    return next(line.removeprefix("run_id:") for line in lines if line.startswith("run_id:"))
