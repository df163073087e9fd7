"""A short run of the chaos test: a whole cluster, a handful of faults, and every rule checked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_lab.cluster import Cluster
from chaos_lab.run import Plan, run
from chaos_lab.schedule import Fault
from postgres_pair import PostgresPair
from servers import ServerFactory

pytestmark = pytest.mark.chaos

FAULTS = [
    Fault(1.0, "kill node", 0, lasts=2.0),
    Fault(2.0, "kill worker", 0, lasts=1.0),
    Fault(3.5, "step clock", 1, lasts=3.0, amount=3600.0),
    Fault(4.0, "cut", 6, lasts=1.0),
    Fault(5.0, "wipe redis", 0, lasts=0.5),
    Fault(6.5, "half-open", 17, lasts=1.0),
    Fault(7.0, "failover", 0, lasts=0.0),
    Fault(8.0, "pause node", 2, lasts=2.0),
]


@pytest.fixture
def cluster(make_servers: ServerFactory, tmp_path: Path) -> Iterator[Cluster]:
    servers = make_servers()
    pair = PostgresPair(servers.postgres)
    yield Cluster(servers, pair, tmp_path, workers=3)
    pair.close()


async def test_every_rule_holds_through_a_handful_of_faults(cluster: Cluster) -> None:
    verdict = await run(cluster, Plan(seed=7, seconds=10, rate=60, faults=FAULTS), print)
    print(verdict.text)
    assert verdict.broken == []
    assert sum(verdict.facts.faults.values()) == len(FAULTS)
    assert len(verdict.evidence.runs) > 200
