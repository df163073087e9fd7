"""Rules of section 2: read."""

import uuid
from typing import Any, Final

from duly.nodes.conformance.attempts import ECHO, SLEEP, Attempt, dispatch
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.rule import need, rule, skip
from duly.storage import keys

_MANY: Final = 200
"""A worker with more slots is not filled up."""

_PAYLOAD_BYTES: Final = 256 * 1024

_TEXT: Final = "äöü € 😀 \"double\" 'single' back\\slash new\nline tab\t end"


@rule("2.1", "takes a task, runs it and reports it")
async def takes(bench: Bench) -> None:
    sent: dict[str, Any] = {"text": _TEXT, "list": [1, 2.5, True, None, {}], "empty": ""}
    report = await bench.done(await bench.publish(ECHO, sent))
    need(report.value("result") == sent, f"{sent!r} came back as {report['result'][:300]}")


@rule("2.2", "never holds more tasks than it runs at a time")
async def no_more_than_room(bench: Bench) -> None:
    room = (await bench.worker()).concurrency
    if room > _MANY:
        skip(f"it runs {room} at a time, more than {_MANY}")
    planned = [dispatch(bench.queue, SLEEP, {"seconds": 0.5}) for _ in range(room + 3)]
    attempts = await bench.publish_all(*planned)

    async def look() -> bool:
        held = len(await bench.pending())
        need(held <= room, f"it runs {room} at a time and holds {held}")
        return all(bench.reports.of(attempt) for attempt in attempts)

    await bench.wait(look, f"{len(attempts)} reports")
    for attempt in attempts:
        await bench.done(attempt)


@rule("2.3", "ignores fields that it does not know")
async def unknown_fields(bench: Bench) -> None:
    trace = f"00-{uuid.uuid4().hex}-00f067aa0ba902b7-01"
    await bench.done(await bench.publish(ECHO, 1, colour="green", traceparent=trace))


@rule("2.4", "finds what was delivered to it in an answer that was lost")
async def lost_delivery(bench: Bench) -> None:
    await bench.echo()
    sign = await bench.worker()
    attempt, commands = dispatch(bench.queue, ECHO, "lost")
    # In one transaction no other reader comes between: it is the worker's, and it does not know.
    read = ["XREADGROUP", "GROUP", keys.WORKERS_GROUP, sign.id, "COUNT", 1, "STREAMS", bench.tasks, ">"]  # fmt: skip
    answers = await bench.together(*commands, read)
    await bench.done(attempt._replace(entry_id=answers[-2]))


@rule("2.5", "makes the group again when Redis has lost its data")
async def lost_group(bench: Bench) -> None:
    await bench.echo()
    await bench.call("DEL", bench.tasks)

    async def look() -> bool:
        return await bench.has_group()

    await bench.wait(look, f"the group {keys.WORKERS_GROUP!r} of {bench.tasks} is there again")
    await bench.echo()


@rule("2.6", "drops an entry that it cannot read, and goes on")
async def unreadable_entry(bench: Bench) -> None:
    task_id = str(uuid.uuid4())
    begin = ["XADD", bench.tasks, "*", "id", task_id, "payload", "1"]
    no_type = [*begin, "token", "7"]
    no_number = [*begin, "token", "seven", "type", ECHO]
    answers = await bench.together(["HSET", bench.inflight, task_id, "7"], no_type, no_number)
    await bench.unreported(*(Attempt(task_id, 7, entry) for entry in answers[1:]))


@rule("2.7", "takes a payload of 256 KiB, and reports a result as large")
async def large_payload(bench: Bench) -> None:
    sent = "x" * (_PAYLOAD_BYTES - 2)
    report = await bench.done(await bench.publish(ECHO, sent))
    got = report.value("result")
    need(got == sent, f"{len(sent)} characters came back as {str(got)[:40]!r}…")


@rule("2.8", "runs an attempt once that is in the stream twice")
async def twice_in_the_stream(bench: Bench) -> None:
    if (await bench.worker()).concurrency < 2:
        skip("it runs one task at a time, so it never holds both")
    # Unlike in nature, the copies differ: if both are run, they end at different times.
    first = dispatch(bench.queue, SLEEP, {"seconds": 2})
    again = dispatch(bench.queue, SLEEP, {"seconds": 3}, task_id=first[0].id)
    for attempt in await bench.publish_all(first, again):
        await bench.done(attempt)
    reports = await bench.all_reports(first[0])
    ends = {(report["started"], report["finished"]) for report in reports}
    need(len(ends) == 1, f"it was run {len(ends)} times")
