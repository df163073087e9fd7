"""One seed: a cluster, its faults, and the verdict."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import UUID

import simulated.course_statements
import simulated.ledger_statements
import simulated.queue_statements
import simulated.statements
import simulated.task_statements  # noqa: F401 - registers statements
from duly.actors.context import Context
from duly.actors.runtime import ActorCrashedError, MailboxClosedError, Reply
from duly.storage.conveyor import Entry
from duly.wheel.durations import from_us
from simulated.client import Client
from simulated.faults import Chances, Faults, InjectedCrash, Trace
from simulated.ledger import Ledger
from simulated.link import Link, Server
from simulated.loop import SimulationLoop
from simulated.nodes import Node
from simulated.plan import Event, Plan, draw
from simulated.redis_client import instead_of_redis
from simulated.redis_data import Words
from simulated.redis_server import RedisServer
from simulated.scopes import scopes_by_age
from simulated.store import Store
from simulated.workers import Worker

START_US = 1_790_000_000_000_000
_HEALED_S = 90.0
_LONGEST_S = 20.0
"""By then the last process that was paused goes on."""
_LOOK_S = 0.1
_LAG_MAX_US = 1_000_000
_SETTLED_US = 6_000_000
"""By then every slot has an owner, if nothing goes wrong."""

log = logging.getLogger("simulated")


class Verdict(NamedTuple):
    """Of one seed. `broken`: rules, in words; empty if all hold."""

    seed: int
    broken: list[str]
    hash: int
    virtual_s: float
    lines: list[str]
    plan: Plan


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int, plan: Plan, rng: random.Random, trace: Trace) -> None:
        self.seed = seed
        self.plan = plan
        self.queues = list(plan.queues)
        self.trace = trace
        self._rng = rng
        self.links: dict[str, Link] = {}
        self.nodes: list[Node] = []
        self.workers: list[Worker] = []
        self.replies: list[tuple[Node, Reply[Any]]] = []
        self.escaped: list[str] = []
        self.healed = False
        self._numbers = iter(range(1, 1000))
        self._clock_us = 0
        self._stepped_back_us = 0
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self._loop = loop
        self.ledger = Ledger(self.now_us, self._clock_error_us)
        self.ledger.settled_us = self.now_us() + _SETTLED_US
        self.store = Store(plan.slots, lambda: from_us(self.now_us()), self.ledger)
        self.postgres = Server("postgres", self._faults("postgres"), trace)
        names = dict.fromkeys(("redis", *plan.lease_servers))
        self.redis = {
            name: RedisServer(name, self._faults("redis"), trace, self._redis_ms) for name in names
        }
        self.lease_servers = plan.lease_servers
        self.redis["redis"].on_added = self._added
        self.redis["redis"].commands.delivered = self._delivered
        if "lossy_channels" in plan.kinds:
            self.redis["redis"].lossy_channels = 0.5
        troubled = {"redis_noise", "redis_loss", "redis_outage", "redis_stall"}
        self.ledger.may_start_again = bool(troubled & plan.kinds)

    # Time

    def now_us(self) -> int:
        """The cluster's clock: PostgreSQL's."""
        return START_US + round(self._loop.now * 1e6) + self._clock_us

    def _redis_ms(self) -> int:
        return START_US // 1000 + int(self._loop.now * 1000)

    def _clock_error_us(self, owner: str) -> int:
        node = next(node for node in self.nodes if node.name == owner)
        return node.context.clock.offset_error_us + self._stepped_back_us

    # What goes wrong

    def _faults(self, server: str) -> Faults:
        chances = Chances()
        kinds = self.plan.kinds
        if f"{server}_noise" in kinds:
            p = self._rng.choice((0.005, 0.02, 0.08))
            late, slowest_s = (p, 6.0) if server == "postgres" else (0.0, 3.0)
            chances = Chances(p, p, p, late, 2 * p, slowest_s)
        return Faults(random.Random(self._rng.getrandbits(64)), chances, self.plan.latency_s)

    async def _cause(self, event: Event) -> None:
        await asyncio.sleep(event.at_s)
        self.trace.note(self._loop.time(), "world", f"{event.kind} for {event.for_s:.3f} s")
        kind, _, what = event.kind.partition("_")
        server: Server = self.postgres if kind == "postgres" else self.redis["redis"]
        if event.kind == "redis_loss":
            self.redis["redis"].lose_data(restart=self._rng.random() < 0.5)
        elif what == "outage":
            server.down = True
            if isinstance(server, RedisServer):
                server.cut_connections()
            await asyncio.sleep(event.for_s)
            server.recover()
        elif what == "stall":
            server.stall()
            await asyncio.sleep(event.for_s)
            server.recover()
        elif event.kind == "clock_step":
            step_us = round(self._rng.uniform(-2e6, 2e6))
            self._clock_us += step_us
            self._stepped_back_us += max(0, -step_us)
        elif kind == "node":
            await self._trouble_node(what, event.for_s)
        else:
            await self._trouble_worker(what, event.for_s)

    async def _trouble_node(self, what: str, for_s: float) -> None:
        alive = [node for node in self.nodes if node.alive]
        if not alive:
            return
        node = self._rng.choice(alive)
        if what == "pause":
            await self._pause(node.name, for_s)
            return
        if what == "kill":
            node.kill()
        else:
            node.stop()
        await asyncio.sleep(for_s / 3)
        if not self.healed:  # else all have been replaced
            self._add_node()

    async def _trouble_worker(self, what: str, for_s: float) -> None:
        worker = self._rng.choice(self.workers)
        if what == "pause":
            await self._pause(worker.name, for_s * 1.5)
            return
        worker.kill()
        self.workers.remove(worker)
        self._add_worker()

    async def _pause(self, process: str, for_s: float) -> None:
        self._loop.pause(process)
        await asyncio.sleep(for_s)
        self.trace.note(self._loop.time(), "world", f"{process} goes on")
        self.resume(process)

    def resume(self, process: str) -> None:
        """Let a paused process go on, if it is paused."""
        self._loop.resume(process)

    # Processes

    def _add_node(self) -> None:
        kinds = self.plan.kinds if not self.healed else ()
        crashes = 3 * ("actor_crash" in kinds)
        name = f"node-{next(self._numbers)}"
        node = Node(self, name, crashes=crashes, kills=int("node_crash" in kinds))
        self.nodes.append(node)
        node.begin()

    def _add_worker(self) -> None:
        rng = random.Random(self._rng.getrandbits(64))
        worker = Worker(self, f"worker-{next(self._numbers)}", rng)
        self.workers.append(worker)
        worker.begin()

    def any_node(self, rng: random.Random) -> Node | None:
        """One that a client can reach."""
        paused = self._loop.paused
        able = [node for node in self.nodes if node.alive and node.name not in paused]
        return rng.choice(able) if able else None

    def any_context(self, rng: random.Random) -> Context | None:
        """Of such a node, once its clock is measured."""
        node = self.any_node(rng)
        return node.context if node is not None and node.context.clock.synced else None

    def outcome(self, rng: random.Random, entry: Entry) -> tuple[str, float]:
        """How an attempt ends, and after how many seconds."""
        drawn = rng.random()
        run_s = self.plan.pace * rng.choice((0.01, 0.5, rng.random() * 2))
        if drawn < 0.15:
            return "failed", run_s
        if drawn < 0.2:
            return "snoozed", run_s
        if drawn < 0.45 and "hang" in self.plan.kinds and not self.healed:
            # About when the reaper ends it, so that its report meets the attempt that comes next.
            return rng.choice(("completed", "failed")), entry.timeout_s + rng.uniform(4.0, 12.0)
        return "completed", run_s

    def _added(self, key: bytes, words: Words) -> None:
        said = dict(zip(words[::2], words[1::2], strict=True))
        task_id, token = UUID(said[b"id"].decode()), int(said[b"token"])
        if key.endswith(b":tasks"):
            self.ledger.published(task_id, token)
        elif key.endswith(b":reports"):
            self.ledger.report(task_id, token, said[b"outcome"].decode())

    def _delivered(self, key: bytes, consumer: bytes, words: Words) -> None:
        if key.endswith(b":tasks"):
            said = dict(zip(words[::2], words[1::2], strict=True))
            task_id, token = UUID(said[b"id"].decode()), int(said[b"token"])
            self.ledger.delivery(task_id, token, consumer.decode())

    def find(self, url: str) -> tuple[RedisServer, Link]:
        """The server and the link of a URL such as `node-1/redis`."""
        process, _, server = url.partition("/")
        return self.redis[server], self.links[process]

    # From start to end

    async def live(self) -> None:
        """The whole of it."""
        for _ in range(self.plan.nodes):
            self._add_node()
        for _ in range(self.plan.workers):
            self._add_worker()
        faults = [asyncio.ensure_future(self._cause(event)) for event in self.plan.events]
        rngs = [random.Random(self._rng.getrandbits(64)) for _ in range(self.plan.tasks)]
        clients = [
            asyncio.ensure_future(Client(self, number, rng).life())
            for number, rng in enumerate(rngs)
        ]
        if self.plan.kinds:
            await self._is_over(clients, self.plan.faults_for_s)
        self._heal()
        while sum(node.alive and not node.stopping for node in self.nodes) < self.plan.nodes:
            self._add_node()
        if not await self._is_over(clients, _LONGEST_S):
            await self._is_over(clients, _HEALED_S)
        for fault in faults:
            fault.cancel()  # nothing is left that it could trouble
        for client in clients:
            if client.done():
                client.result()
            else:
                self.ledger.breaks("a client was not answered until the end")
        self._check()

    async def _is_over(self, clients: list["asyncio.Task[None]"], within_s: float) -> bool:
        """Whether no client wants more, nobody is owed an answer and no task is left, for a moment."""
        until = self._loop.time() + within_s
        quiet = 0
        while quiet < 2 and self._loop.time() < until:
            await asyncio.sleep(min(_LOOK_S, until - self._loop.time()))
            wanted = any(not client.done() for client in clients) or self._unanswered()
            over = not wanted and not self.store.tasks
            quiet = quiet + 1 if over else 0
        return quiet == 2

    def _unanswered(self) -> list[Node]:
        """A node for each submission that it owes an answer; perhaps it is paused."""
        return [node for node, reply in self.replies if node.alive and not reply.answered]

    def _heal(self) -> None:
        self.healed = True
        self.trace.note(self._loop.time(), "world", "healed")
        for node in self.nodes:
            node.link.crashes = node.link.kills = 0
        for server in (self.postgres, *self.redis.values()):
            server.faults.set(Chances())
            server.recover()

    async def end(self) -> None:
        """Kill what still lives."""
        for node in self.nodes:
            node.kill()
        for worker in self.workers:
            worker.kill()
        left = [node.task for node in self.nodes] + [worker.task for worker in self.workers]
        await asyncio.wait(left, timeout=20)

    def _check(self) -> None:
        ledger = self.ledger
        ledger.check_end(self.store)
        for said in self.escaped:
            ledger.breaks(f"an actor crashed: {said}")
        for node in self.nodes:
            if node.gave_up is not None and not is_injected(node.gave_up):
                ledger.breaks(f"{node.name} gave up: {node.gave_up!r}")
            if node.error is not None:
                ledger.breaks(f"{node.name} ended: {node.error!r}")
        for node in self._unanswered():
            ledger.breaks(f"a submission to {node.name} was never answered")
        if self.plan.kinds:
            return
        if ledger.lag_us > _LAG_MAX_US:
            ledger.breaks(f"nothing went wrong, and a task was {ledger.lag_us / 1e6:.3f} s late")
        if len(ledger.accepted) < self.plan.tasks:
            ledger.breaks("nothing went wrong, and a submission was not accepted")


def is_injected(error: BaseException) -> bool:
    """Whether a crash is one that was injected, or follows from one."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_injected(one) for one in error.exceptions)
    return isinstance(error, InjectedCrash | ActorCrashedError | MailboxClosedError)


class _Crashes(logging.Handler):
    """Hears of actors that crashed by a fault of their own."""

    def __init__(self, escaped: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._escaped = escaped

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not is_injected(error):
            self._escaped.append(f"{record.getMessage()}: {error!r}")


@contextlib.contextmanager
def _hearing_of_crashes(escaped: list[str]) -> Iterator[None]:
    logger = logging.getLogger("duly")
    handler = _Crashes(escaped)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextlib.contextmanager
def _fewer_slots(slots: int) -> Iterator[None]:
    with (
        # What the product draws for itself comes from the seed too.
        patch("secrets.token_hex", lambda size: random.randbytes(size).hex()),
        patch("duly.storage.slots.SLOTS", slots),
        patch("duly.actors.context.SLOTS", slots),
        patch("duly.actors.report_queues.SLOTS", slots),
        patch("duly.actors.context.SLOTS", slots),
    ):
        yield


def simulate(
    seed: int, *, keep_trace: bool = False, only: frozenset[str] | None = None,
    prepare: Any = None,
) -> Verdict:  # fmt: skip
    """Run one seed. `only`: these kinds of faults, not drawn ones. `prepare`: gets the world."""
    rng = random.Random(seed)
    state = random.getstate()
    random.seed(seed)  # the product's own jitter
    plan = draw(rng, only)
    trace = Trace(keep_trace)
    loop = SimulationLoop(seed)  # type: ignore[abstract]  # it has what a world needs
    broken: list[str] = []

    async def main() -> None:
        world = World(seed, plan, rng, trace)
        if prepare is not None:
            prepare(world)
        with instead_of_redis(world.find), _hearing_of_crashes(world.escaped):
            try:
                await world.live()
            finally:
                broken.extend(world.ledger.broken)
                await world.end()

    try:
        with _fewer_slots(plan.slots), scopes_by_age():
            loop.run_until_complete(main())
    except AssertionError as error:
        broken.append(f"{error!r}")
    finally:
        virtual_s = loop.time()
        _clean_up(loop)
        random.setstate(state)
    return Verdict(seed, broken, trace.hash, virtual_s, trace.lines or [], plan)


def _clean_up(loop: SimulationLoop) -> None:
    for process in list(loop.paused):
        loop.resume(process)
    loop.quiet = True
    for _ in range(3):
        left = [task for task in loop.tasks if not task.done()]
        if not left:
            break
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=20))
    loop.close()
