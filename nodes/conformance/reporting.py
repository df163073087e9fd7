"""Rules of section 4: report."""

import asyncio
from typing import Final

from duly.nodes.conformance.attempts import ECHO, FAIL, SLEEP
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.rule import need, rule
from duly.storage import keys

_FULL_S: Final = 3.0
"""How long Redis has no memory."""


@rule("4.1", "names task, token, outcome, result, worker and times in its report")
async def fields(bench: Bench) -> None:
    attempt = await bench.publish(ECHO, [1, 2])
    report = await bench.report(attempt, "completed")
    sign = await bench.worker()
    need(report.value("result") == [1, 2], f"result: {report['result'][:80]!r}")
    need(report["worker"] == sign.id, f"worker: {report['worker']!r}, but its id is {sign.id!r}")
    started, finished = _ms(report["started"], "started"), _ms(report["finished"], "finished")
    need(started <= finished, f"started {started} is after finished {finished}")
    seconds, _ = await bench.call("TIME")
    near = abs(started / 1000 - int(seconds)) < 86_400
    need(near, f"started {started} is not in milliseconds since 1970")


@rule("4.2", "gives its entry back with the report")
async def entry(bench: Bench) -> None:
    attempt = await bench.publish(ECHO)
    await bench.report(attempt)
    await bench.given_back(attempt)


@rule("4.3", "reports a failure with an error that has a type and a message")
async def failure(bench: Bench) -> None:
    report = await bench.done(await bench.publish(FAIL, "as it should"), "failed")
    error = report.value("error")
    told = isinstance(error, dict) and error.get("type") and isinstance(error.get("message"), str)
    need(bool(told), f"error: {report['error'][:80]!r}")
    need(report["retry"] != "0", "it forbids a retry, which the handler did not ask for")


@rule("4.4", "fails a task without retry whose payload its handler cannot read")
async def unreadable_payload(bench: Bench) -> None:
    report = await bench.done(await bench.publish(SLEEP, b'{"seconds": '), "failed")
    need(report["retry"] == "0", "it allows a retry, which would end the same way")
    await bench.echo()


@rule("4.5", "reports each attempt with the token of its own")
async def own_token(bench: Bench) -> None:
    first = await bench.publish(SLEEP, {"seconds": 2}, token=11)
    await bench.taken(first)
    # Taken for dead, it is dispatched again while it still runs.
    second = await bench.publish(ECHO, "newer", task_id=first.id, token=12)
    report = await bench.done(second)
    need(report.value("result") == "newer", "the newer attempt has the result of the older one")
    await bench.given_back(first)
    for stale in await bench.all_reports(first):
        need(stale["result"] != '"newer"', "the older attempt has the result of the newer one")


@rule("4.6", "sends a report again when it or the answer to it was lost", "proxy")
async def lost_report(bench: Bench) -> None:
    assert bench.proxy is not None
    await bench.echo()
    for lose in (bench.proxy.lose_request, bench.proxy.lose_answer):
        before = bench.proxy.lost
        lose(keys.reports(bench.queue).encode())
        attempt = await bench.publish(ECHO, "report lost")

        async def look(before: int = before) -> bool:
            return bench.proxy is not None and bench.proxy.lost > before

        await bench.wait(look, "a report is sent")
        await bench.done(attempt)
        await bench.echo()
        same = {(one["outcome"], one["started"]) for one in bench.reports.of(attempt)}
        need(len(same) == 1, f"the reports differ: {sorted(same)}")


@rule("4.7", "gives back a task of a type that it has no handler for, with a delay")
async def unknown_type(bench: Bench) -> None:
    report = await bench.done(await bench.publish("conformance.no-handler", 1), "snoozed")
    try:
        delay_s = float(report["delay"])
    except ValueError:
        delay_s = 0.0
    need(0 < delay_s <= 3600, f"delay: {report['delay']!r}, not some seconds")


@rule("4.8", "keeps a report that Redis refuses for lack of memory", "server")
async def out_of_memory(bench: Bench) -> None:
    attempt = await bench.publish(SLEEP, {"seconds": 1})
    await bench.taken(attempt)
    await bench.call("CONFIG", "SET", "maxmemory", 1)
    try:
        await asyncio.sleep(_FULL_S)
        need(await bench.in_stream(attempt), "the report was refused, and the entry is gone")
    finally:
        await bench.call("CONFIG", "SET", "maxmemory", 0)
    await bench.done(attempt)


def _ms(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        need(False, f"{name}: {text!r} is not a number")
        raise
