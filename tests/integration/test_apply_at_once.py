"""Case C15: many processes that define one schedule again and again, as a service does that crashes in a loop."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

from node_rig import RunningNode
from processes import Processes
from waiting import wait_for
from worker_rig import running

import duly

AT_ONCE = 20
FOR_S = 10.0
EVERY_S = 0.2
END_S = FOR_S + 120.0

SCHEDULE = {"type": "tick", "schedule": {"every": EVERY_S}}

PROGRAM = """
import sys
import time
from pathlib import Path
from duly.nodes.cli import main

url, file, gate, for_s = sys.argv[1:]
print("ready", flush=True)
while not Path(gate).exists():
    time.sleep(0.02)
until, times = time.monotonic() + float(for_s), 0
while time.monotonic() < until or not times:
    assert main(["apply", file, "--url", url]) == 0
    times += 1
print("applied", times, flush=True)
"""


async def test_c15_many_processes_that_apply_a_schedule_make_one(
    node: RunningNode, redis_url: str, processes: Processes, tmp_path: Path
) -> None:
    file, gate = tmp_path / "schedules.json", tmp_path / "gate"
    file.write_text(json.dumps({"owner": "shop", "schedules": {"tick": SCHEDULE}}))
    worker = duly.Worker(redis_url)
    ran: Counter[object] = Counter()

    @worker.task("tick")
    async def tick(ctx: duly.Context) -> None:
        ran[ctx.due] += 1

    programs = [
        processes.python("-c", PROGRAM, node.url, file, gate, str(FOR_S)) for _ in range(AT_ONCE)
    ]
    for one in programs:
        await asyncio.to_thread(one.wait_for_line, "^ready$", END_S)
    async with running(worker):
        gate.touch()
        for one in programs:
            await asyncio.to_thread(one.wait_for_line, r"^applied \d+$", END_S)
            assert await asyncio.to_thread(one.wait) == 0
        (task,) = [task async for task in node.client.list()]
        assert (task.name, task.version > 0) == ("tick", True)
        await wait_for(lambda: len(ran) >= FOR_S / EVERY_S / 2, 60, "half of the ticks have run")
    runs = [run async for run in node.client.runs(task.id)]
    assert set(ran.values()) == {1}
    ended = Counter(run.occurrence for run in runs)
    assert set(ended.values()) == {1}
    assert task.created_at is not None
    step = timedelta(seconds=EVERY_S)
    for occurrence in ended:
        assert occurrence is not None
        off = (occurrence - task.created_at) % step
        assert min(off, step - off) <= timedelta(microseconds=1), "its phase was moved"
    seen = sorted(one for one in ended if one)
    assert len(seen) == round((seen[-1] - seen[0]) / step) + 1, "an instant is missing"
    assert seen[-1] - seen[0] >= timedelta(seconds=FOR_S / 2)
