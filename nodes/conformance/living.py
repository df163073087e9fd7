"""Rules of section 1: show that you live."""

import asyncio
from typing import Final

from duly.nodes.conformance.attempts import ECHO, SLEEP
from duly.nodes.conformance.bench import POLL_S, Bench
from duly.nodes.conformance.rule import need, rule
from duly.storage import keys

_LONG_S: Final = keys.LIVENESS_TTL_MS / 1000 + 1.5
"""An attempt through which a worker lives only if it renews its key."""

_AWAY_S: Final = 3.0
"""How long Redis stays away: less than the key lives."""

_NAMES: Final = {"host": str, "pid": int, "queues": list, "running": int, "sdk": str}


@rule("1.1", "shows that it lives before it reads")
async def before_the_first_read(bench: Bench) -> None:
    attempt = await bench.publish(ECHO)

    async def look() -> list[str]:
        return await bench.consumers()

    for name in await bench.wait(look, "the worker reads"):
        found = await bench.call("EXISTS", keys.worker(name))
        need(bool(found), f"{name!r} reads, and there is no key {keys.worker(name)}")
    await bench.report(attempt)


@rule("1.2", "says who it is: host, pid, queues, concurrency, running, sdk")
async def facts(bench: Bench) -> None:
    sign = await bench.worker()
    need(0 < len(sign.id) <= 200, f"its id has {len(sign.id)} characters, not 1 to 200")
    need(bool(sign.facts), "its liveness key holds no JSON object")
    said = sign.facts.get("concurrency")
    whole = isinstance(said, int) and not isinstance(said, bool) and said > 0
    need(whole, f"concurrency is {said!r}, not a whole number above 0")
    for name, kind in _NAMES.items():
        value = sign.facts.get(name)
        need(isinstance(value, kind), f"{name} is {value!r}, not of the type {kind.__name__}")
    need(bench.queue in sign.facts["queues"], f"{bench.queue!r} is not among its queues")


@rule("1.3", "lives on during a task that takes longer than its key lives")
async def long_task(bench: Bench) -> None:
    attempt = await bench.publish(SLEEP, {"seconds": _LONG_S})
    await bench.taken(attempt)
    key = keys.worker((await bench.worker()).id)
    loop = asyncio.get_running_loop()
    end_at = loop.time() + _LONG_S
    while loop.time() < end_at:
        left_ms = await bench.call("PTTL", key)
        need(left_ms != -2, "its liveness key ran out while it ran a task")
        need(left_ms != -1, "its liveness key never runs out: set it with PX 10000")
        need(left_ms <= keys.LIVENESS_TTL_MS, f"its liveness key lives {left_ms} ms, over 10000")
        await asyncio.sleep(POLL_S)
    await bench.done(attempt)


@rule("1.4", "comes back after its connections were cut and Redis was away", "proxy")
async def redis_away(bench: Bench) -> None:
    assert bench.proxy is not None
    attempt = await bench.publish(SLEEP, {"seconds": 1})
    await bench.taken(attempt)
    bench.proxy.cut()
    await asyncio.sleep(_AWAY_S)
    bench.proxy.mend()
    report = await bench.done(attempt)
    await bench.echo()
    starts = {one["started"] for one in bench.reports.of(attempt)}
    need(len(starts) == 1, f"what ran meanwhile was begun {len(starts)} times")
    need(bool(report["started"]), "the report has no time of the start")
    await bench.worker()
