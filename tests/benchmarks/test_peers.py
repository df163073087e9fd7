"""The interface through which peers are measured, by Duly's own adapter on embedded servers.

The adapters of other schedulers need packages that are not installed here: `scripts/bench --peer` has
them installed, and is run by hand.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from benchmarks.environments import CannotInstallError
from benchmarks.peers import compare
from benchmarks.peers.duly_peer import DulyPeer
from benchmarks.peers.notes import WARM_UP, Notes, count_ready, count_starts, read_starts
from benchmarks.peers.peer import Peer, Running, Servers, Submitted, Traits
from benchmarks.peers.process_peer import ProcessPeer
from benchmarks.peers.programs.order import Order, one_by_one
from benchmarks.peers.registry import OURS, PEERS
from benchmarks.peers.starts import WARM_UPS, wait_started
from benchmarks.peers.work import Drain, Lag, Submit, works
from benchmarks.processes import SCRIPTS, spawn, stop, until
from benchmarks.rig import Start, connected
from benchmarks.scenarios import scenarios, tasks

tasks_expect_ahead = tasks.expect_ahead


@pytest.fixture(autouse=True)
def a_slow_machine_may_submit_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "expect_ahead", lambda first: None)


async def test_duly_behind_the_interface(fresh_database: str, redis_url: str) -> None:
    peer = DulyPeer()
    assert peer.install().startswith("duly ")
    async with peer.running(Servers(fresh_database, redis_url)) as running:
        single = await Submit(32, single=True).run(running, peer.traits)
        batch = await Submit(50, single=False).run(running, peer.traits)
        assert single.figures["tasks_per_s"] > 0
        assert batch.figures["tasks_per_s"] > 0

        drained = await Drain(60).run(running, peer.traits)
        assert len(drained.lags_ms) == 60
        assert drained.figures["tasks_per_s"] > 0
        assert drained.figures["early"] == 0

    async with connected(fresh_database) as database:
        ran = await database.fetch(
            "select type, count(*) as runs from runs group by type order by type"
        )
    assert [tuple(row) for row in ran] == [("bench.noop", 60), ("bench.noted", WARM_UPS)]


async def test_the_lag_of_duly_behind_the_interface(fresh_database: str, redis_url: str) -> None:
    peer = DulyPeer()
    async with peer.running(Servers(fresh_database, redis_url)) as running:
        lagged = await Lag(20, 2).run(running, peer.traits)
    assert len(lagged.lags_ms) == 40
    assert lagged.figures["early"] == 0


class FakeRunning:
    """Runs everything 10 ms late; records nothing."""

    async def set_workers(self, count: int) -> None:
        self.workers = count

    async def submit(
        self, dues: Sequence[float], single: bool = False, noted: bool = True
    ) -> Submitted:
        assert noted, "what is not recorded has to be noted"
        return Submitted(0.5, dues)

    async def starts(self, submitted: Submitted, timeout_s: float) -> list[Start]:
        return [Start(due, due + 0.01) for due in submitted.dues]

    async def recorded(self, count: int, timeout_s: float) -> list[float]:
        raise AssertionError("this peer records nothing")


class FakePeer:
    """A peer that takes no time, or cannot be installed, or does not get done."""

    def __init__(self, name: str, installs: bool = True, ends: bool = True) -> None:
        self.traits = Traits(
            name, "nothing", submits_per_s=1_000_000, drains=100, keeps_outcomes=False
        )
        self._installs = installs
        self._ends = ends

    def install(self) -> str:
        if not self._installs:
            raise CannotInstallError("no such thing")
        return f"{self.traits.name} 1"

    @asynccontextmanager
    async def running(self, servers: Servers) -> AsyncIterator[Running]:
        if not self._ends:
            raise TimeoutError("3 of 5 tasks started")
        yield FakeRunning()


async def test_a_peer_that_records_nothing_is_done_when_the_last_has_started() -> None:
    outcome = await Drain(500).run(FakeRunning(), FakePeer("fake").traits)
    assert len(outcome.lags_ms) == 100
    assert outcome.figures["tasks_per_s"] == pytest.approx(10_000, rel=0.01)


def test_a_peer_that_cannot_be_installed_is_left_out_by_name() -> None:
    good, bad = FakePeer("good"), FakePeer("bad", installs=False)
    ready, wrong = compare.install([good, bad])
    assert ready == [good]
    assert wrong == ["bad is left out: no such thing"]


async def test_peers_take_turns_and_one_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def nothing(*args: object) -> AsyncIterator[Servers]:
        yield Servers("", "")

    monkeypatch.setattr(compare, "embedded_servers", nothing)
    monkeypatch.setattr(compare, "_empty", nothing)
    peers: list[Peer] = [FakePeer("a"), FakePeer("b"), FakePeer("stuck", ends=False)]
    records, wrong = await compare.compare(peers, {"drain": Drain(5)}, 2)
    assert [one["system"] for one in records] == ["a", "b", "b", "a"]
    assert wrong == ["drain, stuck: 3 of 5 tasks started"] * 2
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_scenarios_for_peers_have_the_names_of_ours() -> None:
    assert set(works()) <= set(scenarios())
    assert list(works(quick=True)) == list(works())


def test_every_peer_has_a_program() -> None:
    programs = SCRIPTS / "benchmarks" / "peers" / "programs"
    assert OURS.traits.name not in PEERS
    for peer in PEERS.values():
        assert isinstance(peer, ProcessPeer)
        assert (programs / f"{peer.program or peer.traits.name}_program.py").exists()


# Notes and orders


def test_notes_tell_the_first_start_of_each_task(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path))
    before = time.time()
    for number in (WARM_UP, 1, 0, 1):
        notes.started(number)
    notes.ready()
    first, count = read_starts(tmp_path)
    assert count == 3
    assert set(first) == {0, 1}
    assert before <= first[1] <= first[0] <= time.time()
    assert count_starts(tmp_path) == 4
    assert count_ready(tmp_path) == 1


async def test_a_wait_that_ends_tells_how_many_started(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path))
    notes.started(0)
    with pytest.raises(TimeoutError, match="1 of 2 tasks started"):
        await wait_started(tmp_path, [0.0, 0.0], 0.5)
    notes.started(1)
    assert len(await wait_started(tmp_path, [0.0, 0.0], 30)) == 2


def test_an_order_comes_in_batches() -> None:
    order = Order([0.0] * 2_500, list(range(2_500)), single=False)
    assert [len(dues) for dues, _ in order.batches()] == [1_000, 1_000, 500]


async def test_callers_divide_an_order() -> None:
    submitted: list[int] = []

    async def submit(due: float, number: int) -> None:
        await asyncio.sleep(0)
        submitted.append(number)

    await one_by_one(Order([0.0] * 100, list(range(100)), single=True), submit)
    assert sorted(submitted) == list(range(100))


async def test_a_stopped_process_leaves_no_child_behind(tmp_path: Path) -> None:
    told = tmp_path / "child"
    code = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"path = pathlib.Path({str(told)!r}); part = path.with_suffix('.part')\n"
        "part.write_text(str(child.pid)); part.rename(path)\n"
        "time.sleep(600)\n"
    )
    process = await spawn([sys.executable, "-c", code], os.environ)

    async def has_a_child() -> bool:
        return told.exists()

    async def child_is_gone() -> bool:
        return not is_running(int(told.read_text()))

    await until(has_a_child)
    await stop(process)
    await until(child_is_gone)


def is_running(pid: int) -> bool:
    """A process that has ended and has not been waited for does not run."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_command_says_what_it_does_not_know() -> None:
    command = [sys.executable, "-P", "-m", "benchmarks", "--peer", "pgqueuer", "idle"]
    environ = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"no such scenario: idle" in done.stderr


def test_a_first_task_that_was_due_too_early_is_said() -> None:
    tasks_expect_ahead(time.time() + 60)
    with pytest.raises(RuntimeError, match="before all of them were submitted"):
        tasks_expect_ahead(time.time() - 1)
