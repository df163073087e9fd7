"""A plain URL that leads into a Redis Cluster: commands say what is wrong, in one line, and try on."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from processes import Child, Processes
from redis_cluster import TestCluster, cluster

_CODE = """
import os
import duly

queues = [f"q{n}" for n in range(20)]
worker = duly.Worker(os.environ["DULY_REDIS_URL"], queues=queues)


@worker.task("t")
async def work(ctx: duly.Context) -> None:
    pass
"""
_SAID = r"this server is one of a Redis Cluster \(.+\): name the cluster by redis\+cluster://"


@pytest.fixture
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestCluster]:
    async with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def _ends_as_asked(child: Child) -> None:
    assert "Traceback" not in child.output
    assert child.stop() == 0


async def test_node_and_worker_say_so_once_and_try_on(
    processes: Processes, servers: TestCluster, fresh_database: str, tmp_path: Path
) -> None:
    url = servers.primaries[0].url
    (tmp_path / "plain_url_tasks.py").write_text(_CODE)
    environ = {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": url, "DULY_PORT": "0",
               "PYTHONPATH": str(tmp_path)}  # fmt: skip
    node = processes.python("-m", "duly", "node", env=environ)
    worker = processes.python("-m", "duly", "worker", "plain_url_tasks", env=environ)
    line = f"connecting to Redis fails, trying on: {_SAID}"
    worker.wait_for_line(line)
    registering = f"registering in Redis fails, trying on: {_SAID}"
    node.wait_for_line(registering)
    node.wait_for_line("looking after workers fails")  # a later try of others
    assert worker.output.count("trying on") == 1
    assert node.output.count("registering in Redis fails") == 1
    _ends_as_asked(worker)
    _ends_as_asked(node)


async def test_node_names_the_lease_server(
    processes: Processes, servers: TestCluster, fresh_database: str
) -> None:
    environ = {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": servers.url,
               "DULY_LEASE_REDIS_URLS": servers.primaries[0].url, "DULY_PORT": "0"}  # fmt: skip
    node = processes.python("-m", "duly", "node", env=environ)
    node.wait_for_line(
        "renewing leases fails, trying on: no majority of the lease servers answers; lease server 0 is one "
        r"of a Redis Cluster \(CROSSSLOT .+\): name servers of their own in lease_redis_urls"
    )
    _ends_as_asked(node)


async def test_doctor_names_the_cause(
    servers: TestCluster, fresh_database: str, redis_url: str
) -> None:
    plain = servers.primaries[0].url

    def bad(redis: str, leases: str) -> dict[str, str]:
        environ = {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": redis,
                   "DULY_LEASE_REDIS_URLS": leases}  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-m", "duly", "doctor", "--json"], env=os.environ | environ,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 1
        found = [json.loads(line) for line in ran.stdout.splitlines()]
        return {
            one["about"]: f"{one['said']}; {one['advice']}"
            for one in found
            if one["level"] == "bad" and one["about"] != "PostgreSQL"
        }

    said = bad(plain, redis_url)
    assert said.keys() == {"Redis"}, "and not the nodes, which cannot be looked for there"
    assert "one of a Redis Cluster; name the cluster by redis+cluster://" in said["Redis"]
    said = bad(servers.url, plain)
    assert said.keys() == {"lease server 0", "lease servers"}
    assert "one of a Redis Cluster; name a server of its own" in said["lease server 0"]
