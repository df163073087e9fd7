"""A handler that runs a command line as cron does. A worker has it only if it registers it:

    from duly.contrib import shell

    worker.task("shell")(shell.handler())

Whoever may submit tasks of that type can then run any command as the worker's user, and if that is
root, as any user.

The command does not see the worker's environment, whose tokens are none of its business. It has the
one that cron gives, the settings of the payload over it, and `DULY_TASK_ID`, `DULY_DUE`,
`DULY_ATTEMPT`, `DULY_FENCING_TOKEN`. It runs in its home folder, in a process group of its own.
When the attempt is to stop (cancelled, timed out, the worker stops) the whole group is killed.
"""

import asyncio
import contextlib
import os
import pwd
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

import msgspec

from duly.contrib.output import Pipe, Tail, pipe
from duly.nodes.worker import Context, Fail

OUTPUT_BYTES_MAX: Final = 16_384
"""Most that is kept of each output; two of them fit a result however they have to be escaped."""

TERM_S_MAX: Final = 60.0
"""Longest time between SIGTERM and SIGKILL."""

ERROR_CHARS_MAX: Final = 4_000
"""How much of the error output a failure shows."""

BACKGROUND_S: Final = 10.0
"""How long after the command's end the output of what it left in the background is awaited."""

_KILL_S: Final = 1.0
_POLL_S: Final = 0.02
# A process of its own, since neither uvloop nor a thread may change the user between fork and exec.
_SWITCH: Final = """
import os, sys
uid, gid, groups, *words = sys.argv[1:]
os.setgroups([int(one) for one in groups.split(",")])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(words[0], words)
"""


class Command(msgspec.Struct, forbid_unknown_fields=True):
    """The payload."""

    command: str
    """For the shell: `SHELL -c command`."""
    stdin: str | None = None
    """Its standard input; without it there is nothing to read."""
    env: dict[str, str] = {}
    """Settings over those of cron; LOGNAME and USER cannot be changed."""
    user: str | None = None
    """Who it runs as, by default the worker's user; only root can run as another."""


class CommandFailedError(Exception):
    """The command ended with another exit code than 0, or by a signal."""


class _Account(NamedTuple):
    name: str
    uid: int
    gid: int
    home: str


def handler(
    *, output_bytes: int = OUTPUT_BYTES_MAX, term_s: float = 0.5
) -> Callable[[Context, Command], Coroutine[Any, Any, dict[str, Any]]]:
    """Return a handler that runs commands.

    `output_bytes`: how much of the end of each output is kept, 0 to 16,384.
    `term_s`: time between SIGTERM and SIGKILL to the process group, 0 to 60. With more than about
    0.8 an attempt that is to stop is reported before its processes are gone.

    The result is `{"stdout", "stderr", "stdout_bytes", "stderr_bytes"}`: the ends of the outputs
    and how much there was. An exit code other than 0 fails the attempt, with the end of the error
    output (if there was none, of the output) in the message. Raises ValueError for a wrong
    argument.
    """
    if not 0 <= output_bytes <= OUTPUT_BYTES_MAX:
        raise ValueError(f"output_bytes is 0 to {OUTPUT_BYTES_MAX}, not {output_bytes}")
    if not 0 <= term_s <= TERM_S_MAX:
        raise ValueError(f"term_s is 0 to {TERM_S_MAX:g}, not {term_s}")

    async def shell(ctx: Context, payload: Command) -> dict[str, Any]:
        words, env = await asyncio.to_thread(_prepare, ctx, payload)
        async with pipe(output_bytes) as out, pipe(output_bytes) as err:
            code = await _run(words, payload.stdin, env, (out, err), term_s)
            if code != 0:
                raise CommandFailedError(_why(code, out.tail, err.tail))
            return {
                "stdout": out.tail.text(),
                "stderr": err.tail.text(),
                "stdout_bytes": out.tail.total_bytes,
                "stderr_bytes": err.tail.total_bytes,
            }

    return shell


def _prepare(ctx: Context, payload: Command) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of the process; accounts and folders may be far away."""
    account = _account(payload.user)
    env = _environment(account, payload.env, ctx)
    if not os.path.isdir(env["HOME"]):
        raise CommandFailedError(f"the home folder {env['HOME']} is not there")
    return [*_as(account), env["SHELL"], "-c", payload.command], env


def _account(user: str | None) -> _Account:
    uid = os.geteuid()
    try:
        found = pwd.getpwuid(uid) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is not None:
            raise Fail(f"there is no user {user!r} on the worker's machine") from None
        # Containers may run with an id that has no account.
        return _Account(str(uid), uid, os.getegid(), os.environ.get("HOME", "/"))
    if uid not in (0, found.pw_uid):
        me = _account(None).name
        raise Fail(f"it is to run as {user}, but the worker runs as {me} and not as root")
    return _Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)


def _environment(account: _Account, given: Mapping[str, str], ctx: Context) -> dict[str, str]:
    cron = {"SHELL": "/bin/sh", "HOME": account.home, "PATH": "/usr/bin:/bin"}
    return {
        **cron,
        **given,
        "LOGNAME": account.name,
        "USER": account.name,
        "DULY_TASK_ID": ctx.id,
        "DULY_DUE": ctx.due.isoformat(),
        "DULY_ATTEMPT": str(ctx.attempt),
        "DULY_FENCING_TOKEN": str(ctx.token),
    }


def _as(account: _Account) -> list[str]:
    """What to put before a command so that it runs as this account."""
    if account.uid == os.geteuid():
        return []
    groups = ",".join(map(str, os.getgrouplist(account.name, account.gid)))
    python = [sys.executable, "-I", "-S", "-c", _SWITCH]
    return [*python, str(account.uid), str(account.gid), groups]


async def _run(
    words: Sequence[str],
    stdin: str | None,
    env: Mapping[str, str],
    outputs: tuple[Pipe, Pipe],
    term_s: float,
) -> int:
    """Run to the end and return the exit code (negative: a signal); if cancelled, kill it all."""
    out, err = outputs
    with contextlib.ExitStack() as files:
        source: IO[bytes] | int = DEVNULL
        if stdin is not None:
            source = files.enter_context(tempfile.TemporaryFile())
            source.write(stdin.encode())
            source.seek(0)
        start = asyncio.create_subprocess_exec(
            *words, stdin=source, stdout=out.end, stderr=err.end, env=env, cwd=env["HOME"],
            start_new_session=True,
        )  # fmt: skip
        starting = asyncio.ensure_future(start)
        try:
            process = await asyncio.shield(starting)
            out.let_go()
            err.let_go()
            code = await process.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BACKGROUND_S):
                    await out.tail.ended.wait()
                    await err.tail.ended.wait()
            return code
        except asyncio.CancelledError:
            await _stop(await starting, term_s)
            raise


async def _stop(process: Process, term_s: float) -> None:
    """End the process and all of its group: asked to, and killed after `term_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + term_s
    try:
        there = _signal(process, signal.SIGTERM)
        while there and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
            there = _signal(process, 0)
    finally:  # also if nobody has the patience to wait
        _signal(process, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_S):
            await process.wait()


def _signal(process: Process, number: int) -> bool:
    """Send a signal to the process's group; says whether there is one still."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # only others' processes (sudo), or on macOS a zombie, are left
        return False
    return True


def _why(code: int, out: Tail, err: Tail) -> str:
    if code < 0:
        try:
            text = f"killed by {signal.Signals(-code).name}"
        except ValueError:
            text = f"killed by signal {-code}"
    else:
        text = f"exit code {code}"
    said = (err.text().strip() or out.text().strip())[-ERROR_CHARS_MAX:]
    return f"{text}\n{said}" if said else text
