"""Rules of section 3: begin."""

from typing import Any, Final

from duly.nodes.conformance.attempts import ECHO, Attempt, dispatch
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.rule import need, rule, skip

_UNAVAILABLE: Final = 503
_CONFLICT: Final = 409


@rule("3.1", "drops an attempt whose place a higher token has taken")
async def superseded(bench: Bench) -> None:
    await bench.unreported(*await bench.publish_all(dispatch(bench.queue, ECHO, inflight="8")))


@rule("3.2", "drops an attempt of which nothing is in flight")
async def forgotten(bench: Bench) -> None:
    await bench.unreported(*await bench.publish_all(dispatch(bench.queue, ECHO, inflight="")))


@rule("3.3", "asks a node before it starts a task with confirm = 1, or gives it back")
async def confirmed(bench: Bench) -> None:
    attempt = await bench.publish(ECHO, "asked", confirm="1")
    report = await bench.report(attempt)
    await bench.given_back(attempt)
    asked = bench.starts.of(attempt.id)
    if report["outcome"] == "snoozed":
        need(not asked, "a node has granted the start, and it was given back all the same")
        return
    need(bool(asked), f"it was {report['outcome']}, and no node was asked")
    _question(asked[0], attempt, report["worker"])
    need(report["outcome"] == "completed", f"the outcome is {report['outcome']!r}")


@rule("3.4", "drops a task whose start a node refuses")
async def refused(bench: Bench) -> None:
    await _asks(bench)
    bench.starts.answers = [_CONFLICT]
    await bench.unreported(await bench.publish(ECHO, "refused", confirm="1"))


@rule("3.5", "asks again with the same start_id while there is no clear answer")
async def no_clear_answer(bench: Bench) -> None:
    await _asks(bench)
    bench.starts.answers = [_UNAVAILABLE, _UNAVAILABLE]
    attempt = await bench.publish(ECHO, "asked thrice", confirm="1")
    await bench.done(attempt)
    asked = bench.starts.of(attempt.id)
    need(len(asked) == 3, f"it asked {len(asked)} times, not 3")
    ids = {str(question.get("start_id")) for question in asked}
    need(len(ids) == 1, f"it asked with {len(ids)} different start_ids")


async def _asks(bench: Bench) -> None:
    """Not tried, unless the worker asks nodes at all."""
    bench.starts.answers = []
    attempt = await bench.publish(ECHO, "does it ask?", confirm="1")
    if (await bench.report(attempt))["outcome"] == "snoozed":
        skip("it knows no node to ask, and gives such tasks back")
    await bench.given_back(attempt)


def _question(asked: dict[str, Any], attempt: Attempt, worker: str) -> None:
    need(asked.get("token") == attempt.token, f"token in the question: {asked.get('token')!r}")
    start_id = asked.get("start_id")
    need(isinstance(start_id, str) and bool(start_id), f"start_id in the question: {start_id!r}")
    need(asked.get("worker") == worker, f"worker in the question: {asked.get('worker')!r}")
