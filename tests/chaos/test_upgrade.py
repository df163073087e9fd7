"""Two versions of the node in one cluster, as in a rolling upgrade: nothing is lost or doubled."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from chaos_lab.cluster import Cluster, Member
from chaos_lab.run import Plan, run
from postgres_pair import PostgresPair
from previous_version import previous_version, schema_of
from processes import Child, Processes, line_of
from servers import ServerFactory
from waiting import wait_for

from duly.storage.migrate import migrations

pytestmark = pytest.mark.chaos

_NODES = 3
_WAIT_S = 120.0
_SOME = 25
_LISTENS = r"listening on (http://\S+)"
_SUPPORT = Path(__file__).parents[1] / "support"
_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, aiohttp.ClientError)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the version before this one is imported from."""
    root = previous_version(tmp_path_factory.mktemp("version"))
    assert schema_of(root) < migrations()[-1].version, "this is not the version before any more"
    return root


def test_a_checkout_without_the_history_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("previous_version.PREVIOUS", "0" * 40)
    with pytest.raises(RuntimeError, match=r"commit 0{40}, cannot be had .* git fetch --unshallow"):
        previous_version(tmp_path)


@pytest.fixture
def cluster(make_servers: ServerFactory, tmp_path: Path, previous: Path) -> Iterator[Cluster]:
    """Nodes of the version before; a worker of it, one of this version, and one without the SDK."""
    servers = make_servers()
    pair = PostgresPair(servers.postgres)
    old = dict.fromkeys([*(f"node-{n}" for n in range(_NODES)), "worker-0"], previous)
    yield Cluster(servers, pair, tmp_path, nodes=_NODES, workers=3, code=old)
    pair.close()


async def test_a_rolling_upgrade_under_load_loses_and_doubles_nothing(cluster: Cluster) -> None:
    verdict = await run(cluster, Plan(seed=11, seconds=5, rate=40, faults=[]), print, _upgrade)
    print(verdict.text)
    assert verdict.broken == []
    assert verdict.facts.crashes == []
    assert verdict.facts.errors == {}
    workers = {start.worker[0] for some in verdict.evidence.starts.values() for start in some}
    assert workers == {"0", "1", "2"}


async def _upgrade(cluster: Cluster) -> None:
    """One node after the other: the first is killed, the others are stopped as they should be."""
    await _more_runs(cluster)
    applied = await asyncio.to_thread(
        cluster.processes.python(
            "-m", "duly", "migrate", env={"DULY_DATABASE_URL": cluster.database_url}
        ).wait
    )
    assert applied == 0
    await _more_runs(cluster)
    for number, node in enumerate(cluster.nodes):
        if number == 0:
            node.kill()
        else:
            assert await asyncio.to_thread(node.stop) == 0
        node.code = None
        node.start()
        await _owns_slots(cluster, node)
        await _more_runs(cluster)


async def test_follow_ups_are_taken_once_no_node_would_drop_them(
    previous: Path, blank_database: str, redis_url: str, processes: Processes
) -> None:
    servers = {
        "DULY_DATABASE_URL": blank_database,
        "DULY_REDIS_URL": redis_url,
        "DULY_LEASE_TTL_S": "12",  # a node stays registered on a slow machine, too
    }
    before = {**servers, "PYTHONPATH": str(previous), "DULY_NODE_NAME": "before"}
    chain = {"type": "quick", "on_success": {"type": "quick"}}

    def start_old() -> Child:
        return processes.python("-m", "duly", "node", "--port", "0", env=before)

    old = start_old()
    old_api = (await line_of(old, _LISTENS))[1]
    async with aiohttp.ClientSession() as http:
        assert (await _submit(http, old_api, chain))[0] == 422

        async def is_registered() -> bool:
            async with http.get(f"{old_api}/v1/nodes") as answer:
                return bool((await answer.json())["items"])

        await wait_for(is_registered, _WAIT_S, "the old node is registered", poll_s=0.2)
        new = processes.python("-m", "duly", "node", "--port", "0", env=servers)
        api = (await line_of(new, _LISTENS))[1]

        async def says_who() -> bool:
            status, said = await _submit(http, api, chain)
            assert status == 503
            return "just now: before-" in said["detail"]

        await wait_for(says_who, _WAIT_S, "the new node knows of the old one", poll_s=0.2)
        again = start_old()
        assert await asyncio.to_thread(again.wait) == 1
        assert "which this version does not know: upgrade duly" in again.output
        path = {**servers, "PYTHONPATH": os.pathsep.join([str(previous), str(_SUPPORT)])}
        processes.python("-m", "duly", "worker", "chaos_worker:worker", env=path)
        # The upgrade is broken off, and begun again.
        assert await asyncio.to_thread(new.stop) == 0
        status, plain = await _submit(http, old_api, {"type": "quick"})
        assert status == 201
        await _runs(http, old_api, plain["id"])
        new = processes.python("-m", "duly", "node", "--port", "0", env=servers)
        api = (await line_of(new, _LISTENS))[1]
        assert await asyncio.to_thread(old.stop) == 0

        async def taken() -> str | None:
            status, said = await _submit(http, api, chain)
            return said["id"] if status == 201 else None

        task = await wait_for(taken, _WAIT_S, "follow-ups are taken", poll_s=0.2)
        [run] = await _runs(http, api, task)
        assert (await _runs(http, api, run["follow_up"]))[0]["outcome"] == "completed"


async def _submit(http: aiohttp.ClientSession, api: str, body: object) -> tuple[int, Any]:
    async with http.post(f"{api}/v1/tasks", json=body) as answer:
        return answer.status, await answer.json()


async def _runs(http: aiohttp.ClientSession, api: str, task: str) -> list[Any]:
    """The runs of a task, once it has one."""

    async def some() -> list[Any]:
        async with http.get(f"{api}/v1/tasks/{task}/runs") as answer:
            return list((await answer.json())["items"])

    return await wait_for(some, _WAIT_S, f"task {task} has run", poll_s=0.2)


async def _more_runs(cluster: Cluster) -> None:
    """Until a good number of runs more is recorded."""
    sql = "select count(*) from runs"
    before = await _value(cluster, sql)

    async def more() -> bool:
        return await _value(cluster, sql) >= before + _SOME

    await wait_for(more, _WAIT_S, "runs are recorded", ignore=_TROUBLE, poll_s=0.2)


async def _owns_slots(cluster: Cluster, node: Member) -> None:
    """Until the process that runs now, and not the one before it, has its share."""
    log = node.child

    async def has_some() -> bool:
        found = [line.split()[-2] for line in log.output.splitlines() if line.endswith(" starts")]
        return (
            bool(found)
            and await _value(cluster, f"select count(*) from slots where owner = '{found[0]}'")
            >= 256 // _NODES
        )

    await wait_for(has_some, _WAIT_S, f"{node.name} owns its share", ignore=_TROUBLE, poll_s=0.2)


async def _value(cluster: Cluster, sql: str) -> int:
    connection = await asyncpg.connect(cluster.database_url, timeout=5)
    try:
        return int(await connection.fetchval(sql, timeout=10))
    finally:
        await connection.close()
