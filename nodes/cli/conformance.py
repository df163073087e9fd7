"""duly conformance: does a worker, in whatever language, keep to the protocol?"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from duly.nodes.cli import values
from duly.nodes.cli.errors import fail
from duly.nodes.conformance import Finding, KitError, Options, Outcome, chosen, run
from duly.nodes.embedded.errors import EmbeddedError
from duly.storage import keys, redis_url
from duly.storage.cluster_url import is_cluster
from duly.storage.redis import TROUBLE

_WORDS = {"pass": "pass", "fail": "FAIL", "not tried": "-"}


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "conformance",
        help="try a worker by the rules of the workers' protocol",
        description="Try a worker, in whatever language, by the rules of docs/worker-protocol.md. The kit "
        "plays the nodes' part itself, in a queue that nobody uses; it starts COMMAND with "
        "DULY_REDIS_URL, DULY_QUEUE and DULY_URL set, or waits until you have started the worker. "
        "Exit code 0: no rule is broken. 1: some are. What the worker needs for it: docs/conformance.md.",
    )
    parser.add_argument("--queue", default="conformance", help="a queue that nobody uses (default: "
                        "%(default)s)")  # fmt: skip
    parser.add_argument("--redis-url", default=os.environ.get("DULY_REDIS_URL"), metavar="URL",
                        help="a Redis server (default: DULY_REDIS_URL, else one of the kit's own)")  # fmt: skip
    parser.add_argument("--rule", action="append", default=[], metavar="NUMBER", help="try this rule, or "
                        "this section, only; may be repeated")  # fmt: skip
    parser.add_argument("--wait", type=_seconds, default=30.0, metavar="SECONDS", help="after so long a "
                        "worker does not do what it should (default: %(default)g)")  # fmt: skip
    parser.add_argument("--listen", type=values.port, default=0, metavar="PORT", help="where the kit takes "
                        "the worker's connections to Redis (default: any port)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--list", action="store_true", help="print the rules and try nothing")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="starts the worker, after --: "
                        "duly conformance -- node worker.js")  # fmt: skip
    parser.set_defaults(run=run_conformance)


def run_conformance(args: argparse.Namespace) -> int:
    """duly conformance."""
    if args.list:
        for rule in chosen(()):
            print(f"{rule.number:<4} {rule.title}")
        return 0
    _check(args)
    options = Options(
        queue=args.queue, redis_url=args.redis_url, command=args.command, rules=args.rule,
        wait_s=args.wait, port=args.listen, output=sys.stderr.fileno(),
    )  # fmt: skip
    show: Callable[[Finding], None] = _nothing if args.json else _show
    try:
        outcome = asyncio.run(_tidily(options, show))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except (KitError, EmbeddedError) as error:
        fail(str(error), 1)
    except TROUBLE as error:
        fail(f"Redis does not do: {error}", 1)
    if args.json:
        print(json.dumps(_as_json(args.queue, outcome)))
    else:
        print(_sum(outcome))
    return 1 if outcome.count("fail") else 0


def _check(args: argparse.Namespace) -> None:
    if not re.fullmatch(keys.QUEUE_NAME, args.queue):
        fail(f"--queue {args.queue!r} is no name of a queue: {keys.QUEUE_NAME}")
    if args.redis_url is not None:
        if is_cluster(args.redis_url):
            fail(
                "the kit tries a worker on one server: --redis-url, DULY_REDIS_URL cannot be a cluster's"
            )
        try:
            redis_url.check(args.redis_url)
        except ValueError as error:  # which does not show the URL: there may be a password in it
            fail(f"the URL of Redis (--redis-url, DULY_REDIS_URL) must be {error}")


async def _tidily(options: Options, show: Callable[[Finding], None]) -> Outcome:
    """`run`; SIGTERM ends it as Ctrl-C does, with its processes and its folder."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(options, show, _say)


def _show(finding: Finding) -> None:
    rule = finding.rule
    print(f"{rule.number:<4} {_WORDS[finding.verdict]:<5} {rule.title}", flush=True)
    if finding.detail:
        print(f"{'':11}{finding.detail}", flush=True)


def _nothing(finding: Finding) -> None:
    pass


def _sum(outcome: Outcome) -> str:
    passed, failed = outcome.count("pass"), outcome.count("fail")
    left = outcome.count("not tried")
    sdk = outcome.worker.facts.get("sdk", "?")
    return f"{outcome.worker.id} ({sdk}): {passed} passed, {failed} failed, {left} not tried"


def _as_json(queue: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "queue": queue,
        "worker": outcome.worker.id,
        "facts": outcome.worker.facts,
        "passed": outcome.count("pass"),
        "failed": outcome.count("fail"),
        "not_tried": outcome.count("not tried"),
        "rules": [
            {
                "number": finding.rule.number,
                "title": finding.rule.title,
                "verdict": finding.verdict,
                "detail": finding.detail,
                "seconds": round(finding.seconds, 3),
            }
            for finding in outcome.findings
        ],
    }


def _say(text: str) -> None:
    print(f"duly: {text}", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 3600")
    return seconds
