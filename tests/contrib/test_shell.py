"""The handler that runs commands, called as a worker calls it."""

import asyncio
import os
import pwd
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from commands import Followed, members
from waiting import wait_for

from duly.contrib import shell
from duly.contrib.shell import Command, CommandFailedError
from duly.nodes.exact_json import ExactDecoder
from duly.nodes.worker import Context, Fail, outcomes

ME = pwd.getpwuid(os.geteuid())
WAIT_S = 60.0


def other() -> pwd.struct_passwd:
    """An account other than root and ours, with a home."""
    usual = (a for a in pwd.getpwall() if a.pw_uid not in (0, ME.pw_uid))
    return next(account for account in usual if os.path.isdir(account.pw_dir))


def context() -> Context:
    return Context(
        id="id1",
        type="shell",
        queue="q",
        token=42,
        attempt=2,
        due_us=1_790_000_000_000_000,
        deadline=time.monotonic() + 600,
        worker="w",
    )


async def run(command: str, *, output_bytes: int = 16_384, **more: Any) -> dict[str, Any]:
    handle = shell.handler(output_bytes=output_bytes)
    return await handle(context(), Command(command, **more))


async def test_outputs_are_the_result() -> None:
    assert await run("echo out; echo err >&2") == {
        "stdout": "out\n", "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4,
    }  # fmt: skip


async def test_a_percent_sign_fed_the_input() -> None:
    assert (await run("cat; cat", stdin="a\nb\n"))["stdout"] == "a\nb\n"


async def test_without_input_there_is_an_end_and_no_waiting() -> None:
    assert (await run("cat"))["stdout"] == ""


async def test_input_that_nobody_reads_does_no_harm() -> None:
    assert (await run("echo done", stdin="x" * 250_000))["stdout"] == "done\n"


async def test_the_exit_code_fails_it_with_the_end_of_the_error_output() -> None:
    with pytest.raises(CommandFailedError) as caught:
        await run("echo out; seq 1 9999 >&2; echo the reason >&2; exit 3")
    said = str(caught.value)
    assert said.startswith("exit code 3\n")
    assert said.endswith("\n9999\nthe reason")
    assert "out" not in said
    assert len(said) < shell.ERROR_CHARS_MAX + 20


async def test_a_failure_without_error_output_shows_the_output() -> None:
    with pytest.raises(CommandFailedError, match=r"^exit code 1\nwhat went wrong$"):
        await run("echo what went wrong; false")


async def test_a_failure_without_any_output() -> None:
    with pytest.raises(CommandFailedError, match=r"^exit code 1$"):
        await run("false")


async def test_a_signal_is_named() -> None:
    with pytest.raises(CommandFailedError, match=r"^killed by SIGKILL$"):
        await run("kill -9 $$")


async def test_only_the_end_of_a_long_output_is_kept() -> None:
    result = await run("yes 123456789 | head -c 30000000; echo end", output_bytes=100)
    assert result["stdout"] == ("123456789\n" * 10)[-96:] + "end\n"
    assert result["stdout_bytes"] == 30_000_004


async def test_nothing_need_be_kept() -> None:
    result = await run("echo abc", output_bytes=0)
    assert (result["stdout"], result["stdout_bytes"]) == ("", 4)


async def test_a_character_that_was_cut_is_left_out() -> None:
    assert (await run("printf 'a\\303\\251b'", output_bytes=2))["stdout"] == "b"
    assert (await run("printf 'a\\303\\251b'", output_bytes=3))["stdout"] == "éb"


async def test_bytes_that_are_no_text_can_be_stored() -> None:
    result = await run("printf 'a\\000b\\377c\\355\\240\\200'")
    assert result["stdout"].startswith("a\ufffdb\ufffdc")
    assert outcomes.completed(result).kind == "completed"


@pytest.mark.parametrize("byte", ["\\001", "\\377", '\\"'])
async def test_the_longest_outputs_fit_a_result(byte: str) -> None:
    fill = f"printf '%20000s' | sed 's/ /x/g' | tr x '{byte}'"
    result = await run(f"{fill}; {fill} >&2", env={"LC_ALL": "C"})
    assert result["stdout_bytes"] == 20_000
    assert outcomes.completed(result).kind == "completed"


# Where it runs


async def test_the_environment_is_that_of_cron_and_not_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DULY_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    text = (await run("env"))["stdout"]
    env = dict(line.split("=", 1) for line in text.splitlines())
    for made_by_shell in ("PWD", "_", "SHLVL", "OLDPWD"):
        env.pop(made_by_shell, None)
    assert env == {
        "SHELL": "/bin/sh",
        "HOME": ME.pw_dir,
        "PATH": "/usr/bin:/bin",
        "LOGNAME": ME.pw_name,
        "USER": ME.pw_name,
        "DULY_TASK_ID": "id1",
        "DULY_DUE": "2026-09-21T14:13:20+00:00",
        "DULY_ATTEMPT": "2",
        "DULY_FENCING_TOKEN": "42",
    }


async def test_settings_go_over_it_except_who_it_is() -> None:
    settings = {
        "PATH": "/bin:/usr/bin:/x",
        "A": "b c",
        "LOGNAME": "x",
        "USER": "x",
        "DULY_DUE": "x",
    }
    text = (await run('echo "$PATH|$A|$LOGNAME|$USER|$DULY_DUE"', env=settings))["stdout"]
    assert text == f"/bin:/usr/bin:/x|b c|{ME.pw_name}|{ME.pw_name}|2026-09-21T14:13:20+00:00\n"


async def test_it_runs_in_its_home_folder(tmp_path: Path) -> None:
    home = os.path.realpath(tmp_path)  # noqa: ASYNC240
    assert (await run("pwd", env={"HOME": home}))["stdout"] == f"{home}\n"


async def test_a_home_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        await run("pwd", env={"HOME": str(tmp_path / "none")})


async def test_the_shell_is_the_one_that_the_settings_name(tmp_path: Path) -> None:
    own = tmp_path / "shell"
    own.write_text('#!/bin/sh\necho "$1" "$2"\n')
    own.chmod(0o755)
    assert (await run("the command", env={"SHELL": str(own)}))["stdout"] == "-c the command\n"


async def test_a_shell_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(FileNotFoundError):
        await run("true", env={"SHELL": "/nowhere/sh"})


async def test_a_task_may_name_the_workers_own_user() -> None:
    assert (await run("id -un", user=ME.pw_name))["stdout"] == f"{ME.pw_name}\n"


async def test_a_user_that_is_not_there_is_no_use_trying_again() -> None:
    with pytest.raises(Fail, match="there is no user 'nobody-of-that-name'"):
        await run("true", user="nobody-of-that-name")


async def test_only_root_can_run_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: other().pw_uid)
    with pytest.raises(Fail, match=f"to run as root, but the worker runs as {other().pw_name}"):
        await run("true", user="root")


async def test_root_runs_it_as_the_user_with_the_groups_of_the_user() -> None:
    account = other()
    command = 'id -u; id -g; id -G; echo "$LOGNAME $HOME"; pwd'
    if os.geteuid() != 0:
        with pytest.raises(Fail):
            await run(command, user=account.pw_name)
        return
    text = (await run(command, user=account.pw_name))["stdout"]
    uid, gid, groups, name, folder = text.splitlines()
    assert (int(uid), int(gid)) == (account.pw_uid, account.pw_gid)
    wanted = set(os.getgrouplist(account.pw_name, account.pw_gid))
    assert set(map(int, groups.split())) == wanted
    assert name == f"{account.pw_name} {account.pw_dir}"
    assert os.path.samefile(folder, account.pw_dir)  # noqa: ASYNC240


@pytest.mark.parametrize(("name", "value"), [("output_bytes", -1), ("output_bytes", 16_385),
                                             ("term_s", -0.1), ("term_s", 61)])  # fmt: skip
def test_wrong_arguments_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        shell.handler(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", [b"{}", b'{"command": 1}', b'{"command": "x", "shell": "y"}'])
def test_a_payload_of_another_shape_does_not_fit(payload: bytes) -> None:
    with pytest.raises(Exception, match=r"command|shell"):
        ExactDecoder(Command).decode(payload)


# Its end


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    """A command with children; none of them outlives the test."""
    command = Followed(tmp_path)
    yield command
    await command.gone()


async def test_a_cancelled_attempt_takes_the_whole_group_with_it(followed: Followed) -> None:
    attempt = asyncio.create_task(run(followed.text))
    group = await followed.group()
    assert len(members(group)) >= 3
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await followed.gone()


async def test_what_does_not_heed_the_signal_is_killed(tmp_path: Path) -> None:
    stubborn = Followed(tmp_path, before="trap '' TERM;")
    attempt = asyncio.create_task(run(stubborn.text))
    group = await stubborn.group()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await stubborn.gone()
    assert members(group) == []


async def test_a_command_has_time_to_tidy_up(tmp_path: Path) -> None:
    trap = f"trap 'sleep 0.2; echo tidy > {tmp_path}/end; exit' TERM;"
    tidy = Followed(tmp_path, before=trap, children=False)
    attempt = asyncio.create_task(shell.handler(term_s=60)(context(), Command(tidy.text)))
    await tidy.group()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert (tmp_path / "end").read_text() == "tidy\n"
    await tidy.gone()


async def test_a_second_cancellation_kills_at_once(tmp_path: Path) -> None:
    stubborn = Followed(tmp_path, before="trap '' TERM;")
    attempt = asyncio.create_task(shell.handler(term_s=60)(context(), Command(stubborn.text)))
    group = await stubborn.group()
    attempt.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(attempt, 30)
    await wait_for(lambda: not members(group), WAIT_S, "the end of the group")


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancellation_in_the_middle_of_the_start_leaves_nothing(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    start = subprocess.Popen
    started, go_on = threading.Event(), threading.Event()

    def slow(*words: Any, **options: Any) -> Any:
        process = start(*words, **options)
        started.set()
        go_on.wait(WAIT_S)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow)
    attempt = asyncio.create_task(run(followed.text))
    await wait_for(started.is_set, WAIT_S, "the start")
    await followed.group()
    for _ in range(times):
        attempt.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await followed.gone()


async def test_a_command_has_no_files_of_the_worker_open() -> None:
    """Neither copies of its own outputs, which would hold up the end of the attempt."""
    other, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        text = (await run("exec ls /dev/fd/"))["stdout"]
    finally:
        os.close(other)
        os.close(theirs)
    assert text.split() == ["0", "1", "2", "3"]  # the last is that of ls


async def test_the_output_of_what_is_left_in_the_background_is_awaited() -> None:
    assert (await run("(sleep 0.3; echo later) & echo now"))["stdout"] == "now\nlater\n"


async def test_what_stays_in_the_background_holds_up_nothing_and_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "BACKGROUND_S", 0.05)
    result = await run(f"sleep 900 & echo $! > {tmp_path}/pid; echo done")
    assert result["stdout"] == "done\n"
    left = int((tmp_path / "pid").read_text())
    os.kill(left, 0)
    os.kill(left, 9)
