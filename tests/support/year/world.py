"""The year: what goes wrong in it, and the verdict."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import simulated.course_statements
import simulated.ledger_statements
import simulated.statements
import simulated.task_statements  # noqa: F401 - registers statements
from simulated.faults import Chances, Faults, Trace
from simulated.link import Server
from simulated.loop import START_S, SimulationLoop
from simulated.scopes import scopes_by_age
from simulated.store import Store

from duly.actors import wakes
from duly.actors.messages import Schedule
from duly.actors.submitter import waiting
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import Problem
from duly.nodes.api.rescheduling import Refused, Rescheduling
from duly.nodes.api.submissions import new_task
from duly.nodes.api.wire import TaskSubmission
from duly.storage import courses as stored
from duly.storage import submitting
from duly.storage.claims import Claimed, Ended
from duly.storage.errors import StoreUnavailableError
from duly.wheel.durations import from_us
from year.judge import Judge
from year.node import Node
from year.schedules import Drawn, draw, us

_SLOTS = 16
_NODES = 3
_LATENCY_S = 0.002
_TAKE_OVER_S = 5.0
_LOOK_AFTER_S = 300.0
_AGAIN_S = 30.0
_HOUR = 3600.0
_TROUBLE_EVERY_S = 3 * _HOUR
_CLIENT_EVERY_S = _HOUR
_TOLD_EVERY_S = 10 * 86_400.0
_FIRST_DAY_S = 25 * _HOUR  # all are made then, in peace
_TAIL = timedelta(days=4)
"""The oracle sees so far beyond the end: what was late must still be recorded then."""
_NOISE = Chances(refused=5e-4, lost=5e-4, unanswered=1e-3, late=5e-4, slow=2e-3)

_submission = msgspec.json.Decoder(TaskSubmission)


class Figures(NamedTuple):
    """What a year came to. `counts`: of runs by outcome, claims, take-overs, and what went wrong."""

    broken: list[str]
    counts: dict[str, int]
    trace: int
    took_s: float


class _NoRuns(list[Any]):
    """A year of runs does not fit into memory; the judge has seen each."""

    def append(self, run: object) -> None:
        pass


class Year:
    """From `start` to `end`; `drawn`: its schedules. `tell` hears how it goes on."""

    def __init__(
        self, seed: int, start: datetime, end: datetime, drawn: list[Drawn],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._rng = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        self._start_us = us(start)
        self._end = end
        self._drawn = drawn
        self._tell = tell
        self._calm = False
        self.judge = Judge(drawn, lambda: from_us(self.now_us()))
        self.store = Store(_SLOTS, lambda: from_us(self.now_us()), self.judge)
        self.store.runs = _NoRuns()
        self.trace = Trace()
        faults = Faults(random.Random(self._rng.getrandbits(64)), Chances(), _LATENCY_S)
        self.postgres = Server("postgres", faults, self.trace)
        self.nodes: list[Node] = []
        self._numbers = iter(range(1, 1_000_000))
        self._owners: dict[int, Node] = {}
        self._attempts: dict[tuple[UUID, int], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    def now_us(self) -> int:
        """The cluster's clock."""
        return self._start_us + round((self._loop.time() - START_S) * 1e6)

    # Nodes

    def _add_node(self) -> None:
        rng = random.Random(self._rng.getrandbits(64))
        self.nodes.append(Node(self, f"node-{next(self._numbers)}", rng))

    def _alive(self) -> list[Node]:
        return [node for node in self.nodes if not node.dead]

    def _hand_out(self, slots: list[int]) -> None:
        """The slots to nodes at random, without asking whoever has them."""
        alive = self._alive()
        wanted: dict[Node, list[int]] = {}
        for slot in slots if alive else ():
            self._owners[slot] = node = self._rng.choice(alive)
            wanted.setdefault(node, []).append(slot)
        for node, its in wanted.items():
            node.spawn(node.take(its))

    async def _look_after_slots(self) -> None:
        """What nobody holds for whatever reason goes to somebody."""
        while True:
            self._hand_out_free()
            await asyncio.sleep(_LOOK_AFTER_S)

    def _hand_out_free(self) -> None:
        self._hand_out([slot for slot in range(_SLOTS) if not self._is_held(slot)])

    def _is_held(self, slot: int) -> bool:
        owner = self._owners.get(slot)
        return owner is not None and not owner.dead and slot in owner.epochs

    async def pass_on(self, owner: str, message: bytes) -> None:
        """A wake for another node; some get lost."""
        for node in self._alive():
            if node.name == owner and self._rng.random() < 0.98:
                said = wakes.decode(message)
                assert isinstance(said, list)
                node.context.boxes.ticker.offer(Schedule(said))

    # Attempts

    def _spawn(self, life: Any) -> None:
        task = asyncio.ensure_future(life)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.judge.breaks(f"the world: {error!r}")

    def whereabouts(self, task_id: UUID, token: int) -> str:
        """What the reaper sees of an attempt: `held`, `dead` (its worker), or `nowhere`."""
        return self._attempts.get((task_id, token), "nowhere")

    def publish(self, claimed: Claimed) -> None:
        """Into the stream, and out to a worker; one that is there already is left alone."""
        key = (claimed.id, claimed.token)
        if key in self._attempts:
            return
        self._attempts[key] = "held"
        self._spawn(self._attempt(claimed))

    async def _attempt(self, claimed: Claimed) -> None:
        rng, key = self._rng, (claimed.id, claimed.token)
        began = from_us(self.now_us())
        drawn = rng.random()
        run_s = rng.uniform(0.1, 60.0)
        if not self._calm and drawn < 0.1:
            run_s = rng.uniform(0.1, rng.choice((0.5, 3, 30)) * _HOUR)
        if not self._calm and rng.random() < 0.005:
            self._attempts[key] = "dead"
            self.counts["workers killed"] += 1
            if rng.random() < 0.5:
                return
            run_s += rng.uniform(0.0, 3 * _HOUR)  # it was only taken for dead, and reports late
        await asyncio.sleep(run_s)
        drawn = rng.random()
        outcome, delay_s = "completed", None
        if drawn < 0.08:
            outcome = "failed"
        elif drawn < 0.1:
            outcome, delay_s = "snoozed", rng.choice((1.0, 600.0, 20_000.0))
        ended = Ended(
            *key, outcome, "w", began, from_us(self.now_us()),  # type: ignore[arg-type]
            may_retry=rng.random() < 0.8, delay_s=delay_s,
        )  # fmt: skip
        await self._report(ended)
        if rng.random() < 0.01:
            await self._report(ended)  # and once more
        self._attempts.pop(key, None)

    async def _report(self, ended: Ended) -> None:
        """By any node; by another one until one has recorded it."""
        while True:
            alive = self._alive()
            if alive:
                node = self._rng.choice(alive)
                recording = node.spawn(_recorded(node, ended))
                await asyncio.wait([recording])
                if not recording.cancelled() and recording.result():
                    return
            await asyncio.sleep(_AGAIN_S)

    # Clients

    async def _submit(self, drawn: Drawn) -> None:
        """As the API does, by the text of the request."""
        await asyncio.sleep((drawn.created_us - self.now_us()) / 1e6)
        raw = msgspec.json.encode({**drawn.body, "id": str(drawn.id)})
        checker = Checker()
        new = new_task(_submission.decode(raw), raw, checker, drawn.created_us, 100_000)
        checker.raise_if_wrong()
        node = self._rng.choice(self._alive())
        now = from_us(drawn.created_us)
        # As if the node had made the id: then a submission is one statement.
        new = new._replace(own_id=False)
        inserted = await submitting.submit(node.db, [new], now, now)
        await wakes.wake(node.context, waiting([new], inserted))

    async def _clients(self) -> None:
        """Pauses, and runs that somebody asks for."""
        while not self._calm:
            await asyncio.sleep(self._rng.expovariate(1 / _CLIENT_EVERY_S))
            task_id = self._rng.choice(self._drawn).id
            self._spawn(
                self._pause(task_id) if self._rng.random() < 0.5 else self._run_now(task_id)
            )

    async def _pause(self, task_id: UUID) -> None:
        async def pause(node: Node) -> None:
            await stored.pause(node.db, task_id, from_us(self.now_us()), paused=True)

        await self._until_answered(pause)
        self.counts["pauses"] += 1
        await asyncio.sleep(
            self._rng.expovariate(1 / self._rng.choice((60, 6 * _HOUR, 72 * _HOUR)))
        )
        await self._resume(task_id)

    async def _resume(self, task_id: UUID) -> None:
        await self._until_answered(lambda node: Rescheduling(node.context).resume(task_id, None))

    async def _run_now(self, task_id: UUID) -> None:
        async def run(node: Node) -> None:
            await Rescheduling(node.context).run_now(task_id, None)

        with self.judge.asked_to_run(task_id):
            await self._until_answered(run)
        self.counts["runs asked for"] += 1

    async def _until_answered(self, call: Callable[[Node], Any]) -> None:
        while True:
            alive = self._alive()
            if alive:
                node = self._rng.choice(alive)
                asking = node.spawn(_answered(call(node)))
                await asyncio.wait([asking])
                if not asking.cancelled() and asking.result():
                    return
            await asyncio.sleep(_AGAIN_S)

    # Troubles

    async def _troubles(self) -> None:
        kinds = (self._kill, self._stall, self._move, self._no_postgres, self._noise)
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / _TROUBLE_EVERY_S))
            trouble = self._outage if self._rng.random() < 0.02 else self._rng.choice(kinds)
            self.counts[trouble.__name__.strip("_")] += 1
            await trouble()

    async def _kill(self) -> None:
        """A node dies; after a while there is another one."""
        if alive := self._alive():
            self._rng.choice(alive).kill()
            self.nodes = self._alive()
        await asyncio.sleep(_TAKE_OVER_S)
        self._hand_out_free()
        await asyncio.sleep(self._rng.uniform(0.0, 600.0))
        self._add_node()

    async def _stall(self) -> None:
        """A node stands still for longer than its leases, and goes on with what it had in hand."""
        node = self._rng.choice(self._alive())
        self._loop.pause(node.name)  # type: ignore[attr-defined]
        await asyncio.sleep(_TAKE_OVER_S)
        self._hand_out([slot for slot in range(_SLOTS) if self._owners.get(slot) is node])
        await asyncio.sleep(self._rng.uniform(0.0, self._rng.choice((10.0, _HOUR))))
        self._loop.resume(node.name)  # type: ignore[attr-defined]

    async def _move(self) -> None:
        """Some slots go to others, whose owners have not heard of it."""
        self._hand_out(self._rng.sample(range(_SLOTS), 5))

    async def _no_postgres(self) -> None:
        self.postgres.down = True
        await asyncio.sleep(self._rng.uniform(1.0, self._rng.choice((10.0, 1800.0))))
        self.postgres.recover()

    async def _noise(self) -> None:
        self.postgres.faults.set(_NOISE)
        await asyncio.sleep(_HOUR)
        self.postgres.faults.set(Chances())

    async def _outage(self) -> None:
        """Nothing runs, for up to some days."""
        for node in self._alive():
            node.kill()
        self.nodes = []
        await asyncio.sleep(
            self._rng.uniform(60.0, self._rng.choice((_HOUR, 12 * _HOUR, 72 * _HOUR)))
        )
        for _ in range(_NODES):
            self._add_node()
        self._hand_out_free()

    # From start to end

    async def live(self) -> None:
        """The whole of it."""
        for _ in range(_NODES):
            self._add_node()
        caring = asyncio.ensure_future(self._look_after_slots())
        await asyncio.sleep(1.0)
        for one in self._drawn:
            self._spawn(self._submit(one))
        await asyncio.sleep(_FIRST_DAY_S)
        troubles = asyncio.ensure_future(self._troubles())
        clients = asyncio.ensure_future(self._clients())
        await self._until_the_end()
        self._calm = True
        clients.cancel()
        troubles.cancel()
        self._heal()
        until_us = us(self._end + _TAIL) - round(_HOUR * 1e6)
        while self.judge.owed(self._end) and self.now_us() < until_us:
            await asyncio.sleep(_HOUR)
            self._resume_all()  # also what a client has paused at the last moment
        self.judge.check_end(self._end)
        for task in (caring, *self._tasks):
            task.cancel()
        for node in self._alive():
            node.kill()

    async def _until_the_end(self) -> None:
        end_us = us(self._end)
        while (left_s := (end_us - self.now_us()) / 1e6) > 0:
            await asyncio.sleep(min(left_s, _TOLD_EVERY_S))
            counts, days = self.judge.counts, (self.now_us() - self._start_us) / 86_400e6
            over = counts["completed"] + counts["failed"] + counts["skipped"]
            self._tell(f"day {days:.0f}: {over} occurrences, {len(self.judge.broken)} broken rules")

    def _heal(self) -> None:
        for name in list(self._loop.paused):  # type: ignore[attr-defined]
            self._loop.resume(name)  # type: ignore[attr-defined]
        self.postgres.faults.set(Chances())
        self.postgres.recover()
        while len(self._alive()) < _NODES:
            self._add_node()
        self._resume_all()

    def _resume_all(self) -> None:
        for task_id, row in self.store.tasks.items():
            if row["paused"]:
                self._spawn(self._resume(task_id))


async def _recorded(node: Node, ended: Ended) -> bool:
    try:
        await node.record(ended)
    except StoreUnavailableError:
        return False
    return True


async def _answered(call: Any) -> bool:
    """Whether a client need not ask again."""
    try:
        await call
    except (StoreUnavailableError, Problem):
        return False
    except Refused:
        pass
    return True


def simulate(
    seed: int, schedules: int, days: float, *, prepare: Callable[[Year], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Figures:  # fmt: skip
    """`schedules` schedules for `days` days from 1 January 2027 on. `prepare` gets the world."""
    began = time.monotonic()
    start = datetime(2027, 1, 1, tzinfo=UTC)
    end = start + timedelta(days=days)
    drawn = draw(random.Random(seed), schedules, start + timedelta(seconds=2), end + _TAIL)
    state = random.getstate()
    random.seed(seed)  # the product's own jitter
    loop = SimulationLoop(seed)  # type: ignore[abstract]  # it has what a year needs
    found: list[Year] = []

    async def main() -> None:
        found.append(Year(seed, start, end, drawn, tell))
        if prepare is not None:
            prepare(found[0])
        await found[0].live()

    try:
        with scopes_by_age():
            loop.run_until_complete(main())
    finally:
        random.setstate(state)
        loop.quiet = True
    year = found[0]
    counts = dict(year.judge.counts + year.counts)
    return Figures(year.judge.broken, counts, year.trace.hash, time.monotonic() - began)
