"""A run of the kit: the stage is set, and a worker is tried by rule after rule."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import IO, Final, NamedTuple
from urllib.parse import urlsplit

from duly.nodes.conformance import (  # noqa: F401 - the rules register themselves
    beginning,
    leaving,
    living,
    reading,
    reporting,
    stopping,
)
from duly.nodes.conformance.bench import Bench
from duly.nodes.conformance.process import WorkerProcess
from duly.nodes.conformance.proxy import Proxy, proxied
from duly.nodes.conformance.rule import RULES, Broken, Finding, Need, NotTried, Rule, Verdict
from duly.nodes.conformance.server import own_server
from duly.nodes.conformance.signs import Sign
from duly.nodes.conformance.starts import Starts, listening
from duly.storage import keys

_HOST: Final = "127.0.0.1"
_BY_HAND_S: Final = 600.0
"""How long a person has to start the worker."""

_WHY: Final[dict[Need, str]] = {
    "process": "the kit was not told how to start the worker",
    "proxy": "the worker is not connected to Redis by way of the kit",
    "server": "Redis is not the kit's own",
}


class KitError(Exception):
    """The run cannot begin; the text says why."""


@dataclass(frozen=True)
class Options:
    """What is to be tried, and how."""

    queue: str = "conformance"
    """A queue that nobody uses."""
    redis_url: str | None = None
    """A Redis server; None: one of the kit's own."""
    command: Sequence[str] = ()
    """How to start the worker; empty: a person does it."""
    rules: Sequence[str] = ()
    """Numbers of the rules to try, of sections (`2`) too; empty: all."""
    wait_s: float = 30.0
    """After so long without it, a worker does not do what it should; seconds."""
    port: int = 0
    """Where the kit listens for the worker's connections to Redis; 0: any port."""
    output: IO[bytes] | int = asyncio.subprocess.DEVNULL
    """Where what the worker writes goes."""


class Outcome(NamedTuple):
    """What a run found."""

    worker: Sign
    findings: list[Finding]

    def count(self, verdict: Verdict) -> int:
        """How many rules came to this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)


def chosen(numbers: Sequence[str]) -> list[Rule]:
    """The rules of these numbers or sections, in order; all if none is given.

    Raises KitError for one that is not there.
    """
    rules = sorted(RULES.values(), key=lambda rule: [int(part) for part in rule.number.split(".")])
    for number in numbers:
        if not any(number in (rule.number, rule.number.split(".")[0]) for rule in rules):
            raise KitError(
                f"there is no rule {number}; there are {', '.join(r.number for r in rules)}"
            )
    return [
        rule
        for rule in rules
        if not numbers or {rule.number, rule.number.split(".")[0]} & set(numbers)
    ]


async def run(
    options: Options, found: Callable[[Finding], None], say: Callable[[str], None]
) -> Outcome:
    """Try a worker; `found` is told of each rule, `say` what a person should know or do.

    Raises KitError if it cannot begin, EmbeddedError if a Redis of its own does not start, and one of
    `storage.redis.TROUBLE` if that of the user does not answer.
    """
    rules = chosen(options.rules)
    async with _stage(options) as bench:
        worker = await _first_sign(bench, options, say)
        findings = []
        for rule in rules:
            findings.append(await _try(bench, rule, own=options.redis_url is None))
            found(findings[-1])
        return Outcome(worker, findings)


@contextlib.asynccontextmanager
async def _stage(options: Options) -> AsyncIterator[Bench]:
    """All that a run needs; nothing of it is left after the run."""
    async with contextlib.AsyncExitStack() as stack:
        own = (
            own_server() if options.redis_url is None else contextlib.nullcontext(options.redis_url)
        )
        url: str = await stack.enter_async_context(own)
        starts = await stack.enter_async_context(listening(_HOST))
        proxy: Proxy | None = None
        if urlsplit(url).scheme == "redis":
            try:
                proxy = await stack.enter_async_context(proxied(url, _HOST, options.port))
            except OSError as error:
                raise KitError(f"cannot listen on port {options.port}: {error}") from None
        process: WorkerProcess | None = None
        if options.command:
            env = _variables(proxy.url if proxy else url, options.queue, starts)
            process = WorkerProcess(options.command, env, options.output)
        bench = Bench(url, options.queue, starts, options.wait_s, proxy=proxy, process=process)
        stack.push_async_callback(bench.close)
        await _is_unused(bench)
        stack.push_async_callback(bench.forget)
        if process is not None:
            stack.push_async_callback(process.kill)
        reading_reports = asyncio.create_task(bench.reports.keep_reading())
        stack.callback(reading_reports.cancel)
        yield bench


def _variables(url: str, queue: str, starts: Starts) -> dict[str, str]:
    """By which the worker learns what it needs."""
    return {"DULY_REDIS_URL": url, "DULY_QUEUE": queue, "DULY_URL": starts.url}


async def _is_unused(bench: Bench) -> None:
    """Raise KitError if nodes or workers use the queue: the kit would take their tasks away."""
    known = await bench.call("SISMEMBER", keys.QUEUES, bench.queue)
    held = await bench.call("EXISTS", bench.inflight, keys.reports(bench.queue))
    if known or held:
        raise KitError(
            f"queue {bench.queue!r} is in use: choose another one, of which nodes know nothing"
        )
    if bench.process is not None and (others := await bench.signs()):
        raise KitError(f"worker {others[0].id!r} takes tasks of queue {bench.queue!r} already")


async def _first_sign(bench: Bench, options: Options, say: Callable[[str], None]) -> Sign:
    """The worker, started by the kit or by a person."""
    try:
        if bench.process is not None:
            try:
                return await bench.start_worker()
            except OSError as error:
                raise KitError(f"cannot start {options.command[0]}: {error.strerror}") from None
        url = bench.proxy.url if bench.proxy else options.redis_url
        env = _variables(url or "", options.queue, bench.starts)
        say("start the worker now, with " + " ".join(f"{k}={v}" for k, v in env.items()))
        bench.wait_s = _BY_HAND_S
        sign = await bench.worker()
        bench.wait_s = options.wait_s
        return sign
    except Broken as error:
        raise KitError(str(error)) from None


async def _try(bench: Bench, rule: Rule, *, own: bool) -> Finding:
    """Try one rule, and leave the stage as it was before."""
    has: dict[Need, bool] = {
        "process": bench.process is not None,
        "proxy": bench.proxy is not None and bench.proxy.used,
        "server": own,
    }
    for need in sorted(rule.needs):
        if not has[need]:
            return Finding(rule, "not tried", _WHY[need], 0.0)
    began = time.monotonic()
    verdict: Verdict = "pass"
    detail = ""
    try:
        await rule.trial(bench)
    except Broken as broken:
        verdict, detail = "fail", str(broken)
    except NotTried as reason:
        verdict, detail = "not tried", str(reason)
    seconds = time.monotonic() - began
    try:
        await _restore(bench, anew=verdict == "fail")
    except Broken as broken:
        if verdict == "pass":
            verdict, detail = "fail", f"afterwards: {broken}"
    return Finding(rule, verdict, detail, seconds)


async def _restore(bench: Bench, *, anew: bool) -> None:
    """Take away what is left. `anew`: with another worker process, since this one may be confused."""
    bench.starts.answers = []
    if bench.proxy is not None:
        bench.proxy.mend()
    process = bench.process
    if process is not None and anew:
        await process.kill()
    await bench.clear()
    if process is not None and not process.runs:
        for left in await bench.signs():
            await bench.call("DEL", keys.worker(left.id))
        await bench.start_worker()
