"""Handlers that run in processes: another process must find them by their names."""

import os
import subprocess
import time
from pathlib import Path

import msgspec

import duly

worker = duly.Worker("redis://127.0.0.1:1/0")


class Job(msgspec.Struct):
    """A payload that is pickled on its way."""

    n: int


class UnsendableError(Exception):
    """Cannot be made anew from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@worker.task("where", process=True)
def where(ctx: duly.Context, job: Job) -> dict[str, object]:
    """What of the context comes here."""
    return {
        "pid": os.getpid(), "n": job.n, "id": ctx.id, "attempt": ctx.attempt, "state": ctx.state,
        "headers": ctx.headers(), "trace": ctx.traceparent, "left_s": ctx.remaining_s,
        "parent": None if ctx.parent is None else ctx.parent.result,
    }  # fmt: skip


def fail(ctx: duly.Context, payload: str) -> None:
    """End in the way that the payload names."""
    if payload == "fail":
        raise duly.Fail("no")
    if payload == "retry":
        raise duly.Retry(7, "again")
    if payload == "snooze":
        raise duly.Snooze(7)
    if payload == "unsendable":
        raise UnsendableError("a", "b")
    if payload == "interrupt":
        raise KeyboardInterrupt
    if payload == "die":
        os._exit(3)
    raise ValueError(payload)


def call_programs(ctx: duly.Context) -> str:
    """Let one program read all of its input, and another print."""
    subprocess.run(["cat"], check=True)
    subprocess.run(["echo", "a", "b"], check=True)
    return "done"


def spin(ctx: duly.Context, path: str) -> None:
    """Say who works, and never end."""
    Path(path).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)
