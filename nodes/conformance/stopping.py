"""Rules of sections 5 and 6: time out, and be told to stop."""

import asyncio
import json
from typing import Final

from duly.nodes.conformance.attempts import SLEEP
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.rule import need, rule

_BEGIN_S: Final = 1.0
"""After so long an attempt that was fetched has begun, even if its worker is slow."""


@rule("5.1", "stops a task at its timeout, and says so")
async def times_out(bench: Bench) -> None:
    attempt = await bench.publish(SLEEP, {"seconds": 4 * bench.wait_s}, timeout="1.5")
    report = await bench.done(attempt, "failed")
    error = report.value("error")
    kind = error.get("type") if isinstance(error, dict) else error
    need(kind == "timed_out", f"error: {report['error'][:80]!r}, not of the type timed_out")
    await bench.echo()


@rule("6.1", "stops an attempt that it is told to stop, and drops it")
async def cancelled(bench: Bench) -> None:
    sign = await bench.listening()
    attempt = await bench.publish(SLEEP, {"seconds": 4 * bench.wait_s})
    await bench.taken(attempt)
    await asyncio.sleep(_BEGIN_S)
    await bench.supersede(attempt)
    await bench.tell(sign.id, json.dumps({"cancel": attempt.id, "token": attempt.token}))
    await bench.unreported(attempt)


@rule("6.2", "goes on if another attempt is to stop")
async def another_is_cancelled(bench: Bench) -> None:
    sign = await bench.listening()
    attempt = await bench.publish(SLEEP, {"seconds": 2})
    await bench.taken(attempt)
    await bench.tell(sign.id, json.dumps({"cancel": attempt.id, "token": attempt.token - 1}))
    await bench.done(attempt)


@rule("6.3", "goes on after a message that it cannot read")
async def unreadable_message(bench: Bench) -> None:
    sign = await bench.listening()
    for message in ("not json", "[]", '{"colour": "green"}'):
        await bench.tell(sign.id, message)
    await cancelled(bench)
