"""Clusters of several regions in one test: each with a database and a Redis server of its own."""

import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from databases import Databases
from node_rig import RunningNode, running_node
from private_valkey import several
from waiting import wait_for

from duly.nodes.settings import Region, Token
from duly.storage import forwarding
from duly.storage.forwarding import Kept

SECRET = "of-the-other-region"
ADMIN = "of-an-admin"


def token(name: str, role: Any, secret: str) -> Token:
    """A token of the API."""
    return Token(name, role, hashlib.sha256(secret.encode()).hexdigest())


TOKENS = (token("ann", "admin", ADMIN), token("region", "submit", SECRET))


def free_port() -> int:
    """A port on which nothing listens: connections are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Clusters:
    """Makes clusters, which end with the test."""

    def __init__(self, databases: Databases, template_url: str, folder: Path) -> None:
        self._databases = databases
        self._template = template_url
        self._folder = folder

    @asynccontextmanager
    async def region(
        self,
        name: str,
        others: dict[str, str] | None = None,
        *,
        database: str | None = None,
        **settings: Any,
    ) -> AsyncIterator[RunningNode]:
        """A cluster of one node; `others`: the URL of each other region's API, asked with `SECRET`."""
        url = database or self._databases.create(self._template)
        folder = self._folder / f"{name}-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        regions = tuple(Region(other, place, SECRET) for other, place in (others or {}).items())
        values: dict[str, Any] = {"tokens": TOKENS, "token": ADMIN, **settings}
        with several(folder, 1) as (redis,):
            async with running_node(url, redis.url, region=name, regions=regions, **values) as node:
                yield node


async def arrived(node: RunningNode, task_id: Any, limit_s: float = 60.0) -> Kept:
    """What was kept of a task, once its region has answered."""

    async def look() -> Kept | None:
        kept = await forwarding.get(node.context.db, task_id)
        return kept if kept is not None and kept.state != "waiting" else None

    return await wait_for(look, limit_s, "the other region has answered")
