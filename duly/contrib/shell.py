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
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from subprocess import DEVNULL
from typing import IO, Any, Final, NamedTuple

import msgspec

from duly.contrib.group import ProcessGroup
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
    home: str
    uid: int
    gid: int
    groups: list[int] | None
    """Its groups, if it is another one than the worker's."""


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
        account = await asyncio.to_thread(_account, payload.user)
        env = _environment(account, payload.env, ctx)
        words = [env["SHELL"], "-c", payload.command]
        async with pipe(output_bytes) as out, pipe(output_bytes) as err:
            code = await _run(words, payload.stdin, env, account, (out, err), term_s)
            if code != 0:
                raise CommandFailedError(_why(code, out.tail, err.tail))
            return {
                "stdout": out.tail.text(),
                "stderr": err.tail.text(),
                "stdout_bytes": out.tail.total_bytes,
                "stderr_bytes": err.tail.total_bytes,
            }

    return shell


def _account(user: str | None) -> _Account:
    uid = os.geteuid()
    try:
        found = pwd.getpwuid(uid) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is not None:
            raise Fail(f"there is no user {user!r} on the worker's machine") from None
        # Containers may run with an id that has no account.
        return _Account(str(uid), os.environ.get("HOME", "/"), uid, os.getegid(), None)
    if uid not in (0, found.pw_uid):
        me = _account(None).name
        raise Fail(f"it is to run as {user}, but the worker runs as {me} and not as root")
    groups = None if found.pw_uid == uid else os.getgrouplist(found.pw_name, found.pw_gid)
    return _Account(found.pw_name, found.pw_dir, found.pw_uid, found.pw_gid, groups)


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


async def _run(
    words: list[str],
    stdin: str | None,
    env: Mapping[str, str],
    account: _Account,
    outputs: tuple[Pipe, Pipe],
    term_s: float,
) -> int:
    """Run to the end and return the exit code (negative: a signal); if cancelled, kill it all."""
    out, err = outputs
    options: dict[str, Any] = {"env": env, "cwd": env["HOME"], "stdout": out.end, "stderr": err.end}
    if account.groups is not None:
        options |= {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    with contextlib.ExitStack() as files:
        source: IO[bytes] | int = DEVNULL
        if stdin is not None:
            source = files.enter_context(tempfile.TemporaryFile())
            source.write(stdin.encode())
            source.seek(0)
        group = ProcessGroup(words, stdin=source, **options)
        try:
            await group.started()
            out.let_go()
            err.let_go()
            code = await group.ended()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BACKGROUND_S):
                    await out.tail.ended.wait()
                    await err.tail.ended.wait()
            return code
        except asyncio.CancelledError:
            await group.stop(term_s)
            raise


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
