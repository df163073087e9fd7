"""Inflicts the faults of a schedule on a cluster, each at its time, and heals them again."""

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from chaos_lab.cluster import Cluster
from chaos_lab.evidence import FAULT_LOG
from chaos_lab.journal import Journal
from chaos_lab.schedule import Fault, resource

Action = Callable[[], object]
_thread: Final = asyncio.to_thread


class Faults:
    """One run's faults. What is done to a server blocks, so it is done in a thread."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._journal = Journal(folder / FAULT_LOG)
        self._locks: dict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.inflicted: dict[str, int] = defaultdict(int)
        self.current: set[str] = set()

    async def run(self, faults: Sequence[Fault]) -> None:
        """Inflict all of them, counted from now; returns when all are healed."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at - (time.monotonic() - began)))
                tasks.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        # A heal may take longer than planned: then the next fault of the same thing waits.
        async with self._locks[resource(fault)]:
            begin, heal = self._actions(fault)
            started = time.time()
            name = self._name(fault)
            self.current.add(name)
            await _thread(begin)
            await asyncio.sleep(fault.lasts)
            await _thread(heal)
            self.current.discard(name)
            self.inflicted[fault.kind] += 1
            self._journal.add(
                kind=fault.kind, name=name, at=started, healed=time.time(),
                amount=fault.amount,
            )  # fmt: skip

    def _name(self, fault: Fault) -> str:
        if fault.kind in ("cut", "delay", "half-open"):
            return f"{fault.kind} {self._cluster.links[fault.target].name}"
        return f"{fault.kind} {fault.target}"

    def _actions(self, fault: Fault) -> tuple[Action, Action]:
        what, _, whom = fault.kind.partition(" ")
        if whom in ("node", "worker", "clock"):
            return self._of_member(what, whom, fault)
        if whom == "redis":
            return self._of_redis(what)
        if whom == "lease server":
            server = self._cluster.lease_servers[fault.target]
            kill = what == "kill"
            return (server.stop, server.start) if kill else (server.pause, server.resume)
        if whom in ("postgres", "standby") or what == "failover":
            return self._of_postgres(fault.kind)
        return self._of_link(fault)

    def _of_member(self, what: str, whom: str, fault: Fault) -> tuple[Action, Action]:
        cluster = self._cluster
        if whom == "clock":
            step = cluster.step_clock
            return partial(step, fault.target, fault.amount), partial(step, fault.target, 0.0)
        member = (cluster.nodes if whom == "node" else cluster.workers)[fault.target]
        if what == "pause":
            child = member.child
            return child.pause, child.resume
        return (member.kill if what == "kill" else member.stop), member.start

    def _of_redis(self, what: str) -> tuple[Action, Action]:
        servers = self._cluster.servers
        valkey = servers.valkey
        if what == "pause":
            return valkey.pause, valkey.resume

        def heal() -> None:
            if what == "wipe":
                shutil.rmtree(valkey.data / "appendonlydir")
            servers.revive(valkey)

        return valkey.kill9, heal

    def _of_postgres(self, kind: str) -> tuple[Action, Action]:
        pair = self._cluster.pair
        server = pair.standby if kind == "pause standby" else pair.primary
        if kind.startswith("pause"):
            return server.pause, server.resume
        if kind == "kill postgres":
            return server.kill9, server.restart

        def fail_over() -> None:
            server.kill9()
            pair.promote()

        return fail_over, pair.rejoin

    def _of_link(self, fault: Fault) -> tuple[Action, Action]:
        link = self._cluster.links[fault.target]
        loop = asyncio.get_running_loop()

        def slow_down() -> None:
            link.delay_s = fault.amount

        begin = {"cut": link.break_off, "delay": slow_down, "half-open": link.swallow}[fault.kind]
        # The links belong to the loop, and this is called in a thread.
        return partial(loop.call_soon_threadsafe, begin), partial(
            loop.call_soon_threadsafe, link.heal
        )
