"""What the tasks of a chaos run are, and what a handler does with one: the same for every worker.

A handler writes down that it began, does next to nothing, writes down how it ended, and only then
answers. Imports nothing of duly: the worker written by hand uses it too.
"""

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos_lab.journal import Journal

QUEUES: Final = ("chaos", "ledger")
"""Of all tasks, and of those whose effect needs the SDK's `exactly_once`."""

RETRY_DELAY_S: Final = 0.5
"""The fixed back-off of every task, and how long a snooze lasts."""

HANG_TIMEOUT_S: Final = 3.0
"""Timeout of a task that does not end by itself."""

_TAKES_S: Final = 0.02
_SLOW_TAKES_S: Final = 6.0


@dataclass(frozen=True)
class Kind:
    """A kind of task; its name is the task's type. `share` of 1,000 submissions."""

    share: float
    max_retries: int = 50
    on_lost: str = "retry"
    queue: str = QUEUES[0]
    timeout: float = 60.0


KINDS: Final[dict[str, Kind]] = {
    "quick": Kind(679),
    "slow": Kind(15),
    "flaky": Kind(120),
    "snoozy": Kind(50),
    "doomed": Kind(20, max_retries=1),
    "once": Kind(50, max_retries=0, on_lost="fail", timeout=10.0),
    "effect": Kind(57, queue=QUEUES[1]),
    "hang": Kind(2.5, timeout=HANG_TIMEOUT_S),
    "block": Kind(0.25, timeout=HANG_TIMEOUT_S),
    "crash": Kind(0.25),
    "periodic": Kind(6),
}

PERIOD_S: Final = 2.0
"""Between two occurrences of a periodic task."""

PERIODIC_RUNS: Final = 3
"""It ends after so many that ran."""


class NotNowError(Exception):
    """Not now: again after `RETRY_DELAY_S`."""


class FailedError(Exception):
    """This attempt has failed."""


class Log:
    """What one worker process did."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._worker = worker
        self._journal = Journal(folder / f"worker-{worker}.jsonl")

    def start(self, task_id: str, token: int, version: int) -> None:
        """A handler begins."""
        self._journal.add(
            e="start", id=task_id, token=token, at=time.time(), worker=self._worker, version=version
        )

    def end(self, task_id: str, token: int, outcome: str, result: str | None = None) -> None:
        """A handler has ended; its report is next."""
        self._journal.add(
            e="end", id=task_id, token=token, at=time.time(), worker=self._worker,
            outcome=outcome, result=result,
        )  # fmt: skip


def log_from_environment() -> Log:
    """The log of this process, in the folder that the run named."""
    return Log(Path(os.environ["CHAOS_FOLDER"]), f"{os.environ['CHAOS_WORKER']}-{os.getpid()}")


async def perform(kind: str, attempt: int) -> None:
    """Do what a task of this kind does. Raises `NotNowError` or `FailedError`."""
    await asyncio.sleep(random.random() * (_SLOW_TAKES_S if kind == "slow" else _TAKES_S))
    if kind == "doomed" or (kind in ("flaky", "periodic") and random.random() < 0.3):
        raise FailedError
    if kind == "snoozy" and random.random() < 0.4:
        raise NotNowError
    if attempt == 1:
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "block":  # the whole worker: it looks dead for a while, and then goes on
            time.sleep(HANG_TIMEOUT_S * 5)  # noqa: ASYNC251 - that is the point
        if kind == "hang":
            await asyncio.sleep(HANG_TIMEOUT_S * 5)


def new_result(token: int) -> str:
    """A result that no other attempt reports."""
    return f"{token}-{random.getrandbits(48):x}"
