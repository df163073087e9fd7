"""Rules of section 7: leave. Each of them ends the worker, and starts it again."""

import asyncio
from typing import Final

from duly.nodes.conformance.attempts import ECHO, SLEEP, Attempt
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.rule import need, rule
from duly.storage import keys

_BEGIN_S: Final = 2.0
"""After so long an attempt that was fetched has begun, even if its worker is slow."""

_HEARD_S: Final = 1.0
"""After so long a worker has noticed SIGTERM."""


@rule("7.1", "lets what runs end at SIGTERM, and reports it", "process")
async def running_ends(bench: Bench) -> None:
    attempt = await _told_while_running(bench)
    await bench.done(attempt)
    await bench.ended()


@rule("7.2", "begins nothing new after SIGTERM", "process")
async def nothing_new(bench: Bench) -> None:
    running = await _told_while_running(bench)
    await asyncio.sleep(_HEARD_S)
    late = await bench.publish(ECHO, "too late")
    await bench.done(running)
    await bench.ended()
    for report in await bench.all_reports(late):
        back = report["outcome"] == "snoozed" and float(report["delay"] or 0) == 0
        need(back, f"a task that came after SIGTERM was reported as {report['outcome']!r}")


@rule("7.3", "leaves nothing behind: no pending entry, no liveness key", "process")
async def nothing_left(bench: Bench) -> None:
    sign = await bench.worker()
    await bench.done(await _told_while_running(bench))
    await bench.ended()
    held = await bench.pending()
    need(not held, f"{len(held)} entries are still pending under its name")
    need(not await bench.call("EXISTS", keys.worker(sign.id)), "its liveness key is still there")


@rule("7.4", "has another id after each start", "process")
async def another_id(bench: Bench) -> None:
    assert bench.process is not None
    before = await bench.worker()
    bench.process.terminate()
    await bench.ended()
    await bench.call("DEL", keys.worker(before.id))
    after = await bench.start_worker()
    need(after.id != before.id, f"it is {after.id!r} again")


@rule("7.5", "runs the attempt that follows one whose worker was killed", "process")
async def after_a_kill(bench: Bench) -> None:
    assert bench.process is not None
    dead = await bench.worker()
    lost = await bench.publish(SLEEP, {"seconds": 4 * bench.wait_s}, token=21)
    await bench.taken(lost)
    await bench.process.kill()
    await bench.call("DEL", keys.worker(dead.id))
    again = await bench.publish(ECHO, "again", task_id=lost.id, token=22)
    await bench.start_worker()
    report = await bench.done(again)
    need(report.value("result") == "again", f"result: {report['result'][:80]!r}")


async def _told_while_running(bench: Bench) -> Attempt:
    """An attempt that runs while the worker is told to stop."""
    assert bench.process is not None
    attempt = await bench.publish(SLEEP, {"seconds": 5})
    await bench.taken(attempt)
    await asyncio.sleep(_BEGIN_S)
    bench.process.terminate()
    return attempt
