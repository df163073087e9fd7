"""What the node does is what /openapi.json says: a seeded fuzz run over every operation in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
from hand_worker import HandWorker
from node_rig import RunningNode
from waiting import wait_for

_SEED = 20261130
_EXAMPLES = 8
"""Cases drawn for each operation, besides those that cover the corners of its schema."""

_LIMIT_S = 550  # of a run that takes half a minute when it has the machine to itself
_CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "response_headers_conformance",
)  # fmt: skip
_ENDLESS = "/v1/events"


async def tasks_of_every_kind(node: RunningNode, redis_url: str) -> list[str]:
    """Ids of tasks of which some are pending, paused, running, completed, failed, cancelled."""
    client = node.client
    async with HandWorker(redis_url, queue="ending") as worker:
        ended = []
        for number in range(6):
            task = await client.submit("t", {"n": number}, queue="ending", max_retries=0)
            outcome = {"result": '{"a": 1.5}'} if number % 2 else {"error": '"no"'}
            taken = await worker.take()
            await worker.report(taken, "completed" if number % 2 else "failed", **outcome)
            ended.append(task.id)

        async def over() -> bool:
            return all([(await client.get(one)).finished_at for one in ended])

        await wait_for(over, 60, "these tasks have ended")
    for number in range(6):
        far = {"delay": 3600 + number, "tags": {"a": "b"}}
        waiting = (await client.submit("t", **far)).id  # type: ignore[arg-type]
        paused = await client.pause((await client.submit("t", **far)).id)  # type: ignore[arg-type]
        periodic = await client.submit("t", schedule={"cron": "0 3 * * *"}, concurrency_key="k")
        gone = await client.cancel((await client.submit("t", **far)).id)  # type: ignore[arg-type]
        running = await node.running_task()
        ended += [waiting, paused.id, periodic.id, gone.id, running.id]
    return [str(one) for one in ended]


async def test_no_call_breaks_the_node_or_the_description(
    node: RunningNode, redis_url: str, tmp_path: Path
) -> None:
    known = await tasks_of_every_kind(node, redis_url)
    config = tmp_path / "schemathesis.toml"
    config.write_text(
        f"[dictionaries.tasks]\nvalues = {json.dumps(known)}\n"
        '[parameters]\n"path.id" = { dictionary = "tasks", probability = 0.7 }\n'
        # On a busy machine PostgreSQL or Redis may be late, and that is what 503 is for.
        '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "503"]\n'
    )
    words: list[str | Path] = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", config,
        "run", f"{node.url}/openapi.json", "--exclude-path", _ENDLESS,
        "--checks", ",".join(_CHECKS), "--phases", "coverage,fuzzing",
        "--max-examples", str(_EXAMPLES), "--seed", str(_SEED), "--generation-database", "none",
        "--suppress-health-check", "all", "--continue-on-failure", "--no-color",
        "--request-timeout", "60",
    ]  # fmt: skip
    with anyio.fail_after(_LIMIT_S):
        done = await anyio.run_process(words, check=False, stderr=subprocess.STDOUT, cwd=tmp_path)
    told = done.stdout.decode()
    assert done.returncode == 0, told[-20_000:]
    found = re.search(r"(\d+) selected / (\d+) total", told)
    assert found is not None, told
    assert int(found[1]) == int(found[2]) - 1 >= 30
