"""The processes of a run, and the links between them."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from postgres_pair import PostgresPair
from private_valkey import PrivateValkey
from processes import Child, Processes

from chaos_lab.node import make_clock, set_clock
from chaos_lab.proxy import Link
from duly.nodes.embedded import EmbeddedServers
from duly.nodes.embedded.ports import choose

_SCRIPTS: Final = Path(__file__).parents[1]
_LEASE_SERVERS: Final = 3
_LOOK_EVERY_S: Final = 0.3
_RESTART_S: Final = 1.0
_ERROR: Final = re.compile(r"\S+ \S+ ERROR +(.*)")
_ID: Final = re.compile(r"[0-9a-f-]{36}")


class Member:
    """A node or a worker: one process at a time, started again when it ends by itself."""

    def __init__(
        self, name: str, processes: Processes, argv: Sequence[str], code: Path | None, **env: str
    ) -> None:
        self.name = name
        self.code = code
        """Where its next process imports `duly` from; None: from where we do."""
        self.crashes: list[str] = []
        """Ends that nobody caused: exit code and log."""
        self.logs: list[Path] = []
        """Of every process so far."""
        self._processes = processes
        self._argv = argv
        self._env = env
        self._down = False
        self._ended_at: float | None = None
        self.child = self._start()

    def _start(self) -> Child:
        path = [str(_SCRIPTS)] if self.code is None else [str(self.code), str(_SCRIPTS)]
        env = {**self._env, "PYTHONPATH": os.pathsep.join(path)}
        child = self._processes.python(*self._argv, env=env)
        self.logs.append(child.log)
        return child

    def kill(self) -> None:
        """End it at once, until `start`."""
        self._down = True
        self.child.kill9()

    def stop(self) -> int:
        """End it by SIGTERM, until `start`; blocks, answers the exit code."""
        self._down = True
        return self.child.stop(30.0)

    def start(self) -> None:
        """Start it again."""
        self.child = self._start()
        self._down, self._ended_at = False, None

    def look(self) -> None:
        """Start it again if it has ended by itself."""
        if self._down or self.child.exit_code is None:
            return
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self.crashes.append(f"code {self.child.exit_code}, {self.child.log}")
        elif time.monotonic() - self._ended_at > _RESTART_S:
            self.start()


class Cluster:
    """Servers, links, nodes and workers."""

    def __init__(
        self, servers: EmbeddedServers, pair: PostgresPair, folder: Path, *, nodes: int = 3,
        workers: int = 4, bugs: Sequence[str] = (), code: Mapping[str, Path] | None = None,
    ) -> None:  # fmt: skip
        """Servers run already; `folder` is that of the evidence. `bugs`: planted in every node.

        `code`: name of a member -> where it imports `duly` from, if not from where we do.
        """
        self.servers = servers
        self.pair = pair
        self.folder = folder
        self.processes = Processes(folder)
        self.lease_servers: list[PrivateValkey] = []
        self.nodes: list[Member] = []
        self.workers: list[Member] = []
        self.links: list[Link] = []
        """What faults touch: of every node to each PostgreSQL, lease server and Redis; of every
        worker to Redis."""
        self._clocks = [folder / f"clock-{n}" for n in range(nodes)]
        self._ports = [choose(folder / f"node-{n}.port") for n in range(nodes)]
        self._workers = workers
        self._bugs = bugs
        self._code = code or {}
        self._to_apis = Link("workers to nodes", self._ports, spread=True)
        self._watching: asyncio.Task[None] | None = None

    @property
    def apis(self) -> list[str]:
        """The nodes' addresses."""
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    @property
    def crashes(self) -> list[str]:
        """Ends of nodes that nobody caused."""
        return [f"{node.name}: {crash}" for node in self.nodes for crash in node.crashes]

    def errors(self) -> Counter[str]:
        """What the nodes logged as errors: none is expected, whatever is done to them."""
        found: Counter[str] = Counter()
        for node in self.nodes:
            for log in node.logs:
                for line in log.read_text(errors="replace").splitlines():
                    if match := _ERROR.match(line):
                        found[_ID.sub("…", match[1])] += 1
        return found

    @property
    def redis_url(self) -> str:
        """Redis itself, past every link."""
        return self.servers.redis_url

    @property
    def database_url(self) -> str:
        """Both PostgreSQL servers, past every link."""
        return self.pair.url

    async def open(self) -> None:
        """Start everything but the servers."""
        for n in range(_LEASE_SERVERS):
            place = self.folder / f"lease-{n}"
            place.mkdir()
            self.lease_servers.append(PrivateValkey(place))
            self.lease_servers[-1].start()
        for n in range(len(self._ports)):
            self.nodes.append(await self._new_node(n))
        await self._to_apis.open()
        for n in range(self._workers):
            self.workers.append(await self._new_worker(n))
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        """End everything that this has started."""
        if self._watching is not None:
            self._watching.cancel()
        self.processes.close()
        for server in self.lease_servers:
            server.stop()
        for link in (*self.links, self._to_apis):
            link.close()

    def step_clock(self, node: int, offset_s: float) -> None:
        """Set how far the wall clock of a node is off."""
        set_clock(self._clocks[node], offset_s)

    async def _watch(self) -> None:
        while True:
            for member in (*self.nodes, *self.workers):
                member.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _through(self, name: str, url: str) -> str:
        """The same URL by way of a new link."""
        parts = urlsplit(url)
        assert parts.port is not None
        link = Link(name, [parts.port])
        await link.open()
        self.links.append(link)
        credentials = parts.netloc.rpartition("@")[0]
        place = f"{credentials}@127.0.0.1:{link.port}" if credentials else f"127.0.0.1:{link.port}"
        return parts._replace(netloc=place).geturl()

    async def _new_node(self, n: int) -> Member:
        name = f"node-{n}"
        make_clock(self._clocks[n])
        urls = (self.pair.primary.url, self.pair.standby.url)
        hops = [await self._through(f"{name} to postgres", url) for url in urls]
        places = ",".join(urlsplit(url).netloc.rpartition("@")[2] for url in hops)
        credentials = urlsplit(hops[0]).netloc.rpartition("@")[0]
        database = urlsplit(hops[0]).path
        leases = [
            await self._through(f"{name} to lease server {at}", server.url)
            for at, server in enumerate(self.lease_servers)
        ]
        return Member(
            name,
            self.processes,
            ["-m", "chaos_lab.node", str(self._clocks[n]), *self._bugs, "--", "node"],
            self._code.get(name),
            DULY_DATABASE_URL=f"postgresql://{credentials}@{places}{database}"
            "?target_session_attrs=read-write",
            DULY_REDIS_URL=await self._through(f"{name} to redis", self.redis_url),
            DULY_LEASE_REDIS_URLS=",".join(leases),
            DULY_PORT=str(self._ports[n]),
            DULY_NODE_NAME=name,
        )

    async def _new_worker(self, n: int) -> Member:
        name = f"worker-{n}"
        by_hand = n == self._workers - 1
        module = ["chaos_lab.hand_worker"] if by_hand else ["duly", "worker", _SDK_WORKER]
        return Member(
            name,
            self.processes,
            ["-m", *module],
            self._code.get(name),
            DULY_REDIS_URL=await self._through(f"{name} to redis", self.redis_url),
            CHAOS_API=f"http://127.0.0.1:{self._to_apis.port}",
            CHAOS_DATABASE=self.database_url,
            CHAOS_FOLDER=str(self.folder),
            CHAOS_WORKER=name.removeprefix("worker-"),
        )


_SDK_WORKER: Final = "chaos_lab.sdk_worker:worker"
