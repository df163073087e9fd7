"""Every scenario of `scripts/bench`, tiny, with real nodes and workers on embedded servers."""

import pytest
from benchmarks.rig import QUEUE, Rig, running_on
from benchmarks.scenarios import Scenario, scenarios, tasks
from benchmarks.scenarios.cluster import Cluster
from benchmarks.scenarios.drain import Drain
from benchmarks.scenarios.failover import Failover
from benchmarks.scenarios.held_back import HeldBack
from benchmarks.scenarios.idle import Idle
from benchmarks.scenarios.lag import Lag
from benchmarks.scenarios.mixed import Mixed
from benchmarks.scenarios.submit import SubmitBatch, SubmitSingle


@pytest.fixture(autouse=True)
def a_slow_machine_may_submit_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "expect_ahead", lambda first: None)


async def left(rig: Rig) -> int:
    count: int = await rig.database.fetchval("select count(*) from tasks where queue = $1", QUEUE)
    return count


async def test_one_node_is_measured(fresh_database: str, redis_url: str) -> None:
    tiny: dict[str, tuple[Scenario, int]] = {
        "submit_single": (SubmitSingle(32), 0),
        "submit_batch": (SubmitBatch(100), 0),
        "drain": (Drain(100), 100),
        "lag": (Lag(20, 2), 40),
        "mixed": (Mixed(20, 2), 32),
        "idle": (Idle(10, 1, settle_s=0.1), 0),
        "held_back": (HeldBack(50, 2, 20, 2), 40),
    }
    async with running_on(fresh_database, redis_url) as rig:
        for name, (scenario, started) in tiny.items():
            outcome = await scenario.run(rig)
            assert outcome.figures, name
            assert len(outcome.lags_ms) == len(outcome.starts_s) == started, name
            assert outcome.figures.get("early", 0) == 0, name
            assert await left(rig) == 0, name
        with pytest.raises(RuntimeError, match="only node"):
            await rig.kill_node()


async def test_several_nodes_are_measured(fresh_database: str, redis_url: str) -> None:
    async with running_on(fresh_database, redis_url) as rig:
        drained = await Cluster(60).run(rig)
        assert drained.figures["three_per_s"] > 0
        assert len(rig.nodes) == 1

        killed = await Failover(10, 3).run(rig)
        assert len(killed.lags_ms) == 30
        assert killed.figures["late_1s"] <= 30
        assert len(rig.nodes) == 1
        assert await left(rig) == 0


def test_quick_scenarios_are_the_same_ones() -> None:
    assert list(scenarios(quick=True)) == list(scenarios())
