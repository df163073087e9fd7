"""A node: its real tree of actors, without the HTTP server, on simulated stores."""

import asyncio
import contextvars
import random
from typing import Any, NoReturn, cast
from unittest.mock import patch
from uuid import UUID

import anyio

import duly.nodes.node
from duly.actors.context import Context, Options
from duly.actors.runtime import Actor, Mailbox, TooManyRestartsError
from duly.nodes.settings import Settings
from duly.storage.leases import LeaseServers
from duly.storage.members import Members
from duly.storage.statistics import Statistics
from duly.storage.streams import Streams
from duly.wheel.clock import ClusterClock
from simulated.database import SimulatedDatabase
from simulated.link import Link
from simulated.loop import PROCESS

_REDIS_TIMEOUT_S = 1.0
_PULSE_S = 5.0  # no event loop is late here: each look only costs time
# No watched schedules and no bulk actions are simulated.
_LEFT_OUT = frozenset({"api", "bulk", "notices", "watcher", "webhook"})


class _NoApi(Actor[NoReturn]):
    """In the HTTP server's place: the world's clients call what its handlers call. Others' too."""

    name = "api"

    def __init__(self, *_: Any) -> None:
        super().__init__(Mailbox("api", 1))

    async def run(self) -> None:
        await self.stopping.wait()


class Node:
    """One process; ended, another one takes its place under another name."""

    def __init__(self, world: Any, name: str, *, crashes: int, kills: int) -> None:
        self.name = name
        self.link = Link(name, crashes=crashes, kills=kills, kill=self.kill)
        world.links[name] = self.link
        options = Options(pulse_s=_PULSE_S)
        database = cast(Any, SimulatedDatabase(world.postgres, world.store, self.link))
        redis_url = f"{name}/redis"
        lease_urls = [f"{name}/{server}" for server in world.lease_servers]
        timeout_s = options.lease_ttl_s * 0.1
        self.context = Context(
            node_id=name,
            options=options,
            db=database,
            api_db=database,
            streams=Streams(redis_url, name, _REDIS_TIMEOUT_S),
            lease_servers=LeaseServers(lease_urls, name, options.lease_ttl_s, timeout_s),
            members=Members(redis_url, name, options.lease_ttl_s, _REDIS_TIMEOUT_S),
            statistics=Statistics(redis_url, name, _REDIS_TIMEOUT_S),
            clock=ClusterClock(asyncio.get_running_loop().time),
        )
        # Ids of tasks that follow others: from the seed, as all that is drawn.
        vars(self.context)["draw_id"] = lambda: UUID(int=random.getrandbits(128))
        with patch.object(duly.nodes.node, "ApiServer", _NoApi):
            settings = Settings(stop_grace_s=5.0)
            self.supervisor = duly.nodes.node.tree(self.context, settings, cast(Any, None))
            for place in self.supervisor._places:  # its factory looks the name up when it starts
                if place.child.name in _LEFT_OUT:
                    object.__setattr__(place.child, "factory", _NoApi)
        self.killed = False
        self.stopping = False
        self._resume = world.resume
        self.gave_up: BaseException | None = None
        self.task: asyncio.Task[None]

    def begin(self) -> None:
        """Start the process."""
        self._process = contextvars.copy_context()
        self._process.run(PROCESS.set, self.name)
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._serve(), context=self._process)

    async def _serve(self) -> None:
        try:
            await self.supervisor.serve(anyio.Event())
        except TooManyRestartsError as error:
            self.gave_up = error.__cause__ or error

    @property
    def alive(self) -> bool:
        """Whether the process runs (it may be paused)."""
        return not self.killed and not self.task.done()

    @property
    def error(self) -> BaseException | None:
        """What its process ended with, other than a kill."""
        ended = self.task.done() and not self.killed and not self.task.cancelled()
        return self.task.exception() if ended else None

    def kill(self) -> None:
        """As kill -9: nothing that it still does reaches anybody; its mailboxes are gone."""
        self.killed = True
        self.link.dead = True
        self.task.cancel()
        self._resume(self.name)  # it may be paused

    def stop(self) -> None:
        """As SIGTERM; a paused process hears of it when it goes on."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self.supervisor.request_stop, context=self._process)
