"""duly import crontab: what it submits, what it refuses, and that doing it twice does it once."""

import io
import json
import os
import pwd
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi, problem

Duly = Callable[..., Awaitable[Any]]
NOBODY = "http://127.0.0.1:1"
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")


@pytest.fixture
def crontab(tmp_path: Path) -> Callable[..., Path]:
    """Write a crontab of these lines."""

    def write(*lines: str, name: str = "tab") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


Write = Callable[..., Path]


def sent(api: FakeApi) -> list[dict[str, Any]]:
    """The tasks of the last batch."""
    batches = [body for _, path, body, _ in api.requests if path == "/v1/tasks/batch"]
    tasks: list[dict[str, Any]] = batches[-1]["tasks"]
    return tasks


async def test_each_job_becomes_a_periodic_task(api: FakeApi, duly: Duly, crontab: Write) -> None:
    path = crontab(
        "SHELL=/bin/bash", "30 3 * * 1-5 dump %to\\%day", "CRON_TZ=Asia/Tokyo", "@daily x"
    )
    answer = await duly("import", "crontab", path, "--url", api.url)
    assert (answer.code, answer.err) == (0, "")
    first, second = sent(api)
    uuid.UUID(first.pop("id"))
    assert first == {
        "type": "shell",
        "queue": "default",
        "schedule": {"cron": "30 3 * * 1-5", "timezone": "Europe/Berlin"},
        "payload": {"command": "dump ", "stdin": "to%day\n", "env": {"SHELL": "/bin/bash"}},
        "max_retries": 0,
        "timeout": 86400,
        "tags": {"crontab": str(path)},
    }
    assert second["schedule"] == {"cron": "@daily", "timezone": "Asia/Tokyo"}
    assert second["payload"]["env"] == {"SHELL": "/bin/bash", "CRON_TZ": "Asia/Tokyo"}
    assert answer.out.splitlines()[-1] == "2 imported, 0 there already"
    assert f"imported  {path}:2  30 3 * * 1-5  dump" in answer.out


async def test_options_go_into_the_tasks(api: FakeApi, duly: Duly, crontab: Write) -> None:
    path = crontab("* * * * * root x")
    await duly(
        "import", "crontab", path, "--system", "--type-prefix", "cron", "--queue", "night",
        "--timeout", "PT2H", "--max-retries", 2, "--overrun", "queue", "--misfire-grace", 60,
        "--tz", "UTC", "--url", api.url,
    )  # fmt: skip
    (task,) = sent(api)
    del task["id"]
    assert task == {
        "type": "cron.shell", "queue": "night", "payload": {"command": "x", "user": "root"},
        "schedule": {"cron": "* * * * *", "timezone": "UTC"}, "timeout": "PT2H", "max_retries": 2,
        "overrun": "queue", "misfire_grace": 60.0, "tags": {"crontab": str(path)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prefix", "type_"),
    [("", "shell"), ("cron", "cron.shell"), ("cron.", "cron.shell"), ("a/b:", "a/b:shell")],
)
async def test_the_prefix_of_the_type(
    api: FakeApi, duly: Duly, crontab: Write, prefix: str, type_: str
) -> None:
    await duly("import", "crontab", crontab("@daily x"), "--type-prefix", prefix, "--url", api.url)
    assert sent(api)[0]["type"] == type_


# Twice


async def test_what_is_imported_twice_is_there_once(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    path = crontab("@daily x", "@daily x", "@daily y")
    await duly("import", "crontab", path, "--url", api.url)
    assert len(api.tasks) == 3  # cron would run x twice, so two tasks do
    moved = crontab("# more", "@daily y", "", "@daily x", "@daily z", name="elsewhere")
    answer = await duly("import", "crontab", moved, "--url", api.url)
    assert answer.code == 0
    assert len(api.tasks) == 4
    lines = [line.split("  ")[1] for line in answer.out.splitlines()[:-1]]
    assert lines == ["there already, pending", "there already, pending", "imported"]
    assert answer.out.splitlines()[-1] == "1 imported, 2 there already"


async def test_many_known_ones_take_several_answers_to_be_named(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    api.errors_max = 2
    lines = [f"{minute} * * * * x" for minute in range(9)]
    await duly("import", "crontab", crontab(*lines[:7]), "--url", api.url)
    answer = await duly("import", "crontab", crontab(*lines), "--url", api.url)
    assert answer.out.splitlines()[-1] == "2 imported, 7 there already"
    assert len(api.tasks) == 9


async def test_a_cancelled_one_is_not_imported_again_and_that_is_said(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    path = crontab("@daily x")
    await duly("import", "crontab", path, "--url", api.url)
    (task_id,) = api.tasks
    await duly("cancel", task_id, "--url", api.url)
    answer = await duly("import", "crontab", path, "--url", api.url)
    assert f"{task_id}  there already, cancelled" in answer.out


@pytest.mark.parametrize(
    "other",
    [["1 0 * * * x"], ["X=1", "0 0 * * * x"], ["0 0 * * * x "], ["CRON_TZ=UTC", "0 0 * * * x"]],
)
async def test_what_differs_is_another_task(
    api: FakeApi, duly: Duly, crontab: Write, other: list[str]
) -> None:
    await duly("import", "crontab", crontab("0 0 * * * x"), "--url", api.url)
    answer = await duly("import", "crontab", crontab(*other), "--url", api.url)
    assert answer.out.splitlines()[-1] == "1 imported, 0 there already"


async def test_the_id_is_a_promise(api: FakeApi, duly: Duly, crontab: Write) -> None:
    """It must be the same in every version of Duly, or an import after an update doubles all."""
    await duly("import", "crontab", crontab("X=1", "0 0 * * * x%y"), "--url", api.url)
    assert list(api.tasks) == ["3f873e80-74db-58ad-8b2b-62dc4a77a008"]


async def test_one_line_in_two_files_is_one_task(api: FakeApi, duly: Duly, crontab: Write) -> None:
    first, second = crontab("@daily x", name="a"), crontab("", "@daily x", name="b")
    answer = await duly("import", "crontab", first, second, first, "--url", api.url)
    assert answer.out.splitlines()[-1] == "1 imported, 0 there already"
    assert f"note: {second}:2: the same as {first}:1" in answer.err


# What cannot be taken


async def test_nothing_is_submitted_unless_all_is_well(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    path = crontab(
        "@daily x", "@reboot y", "61 * * * * z", "0 0 30 2 * z", "CRON_TZ=Mars", "@daily a"
    )
    answer = await duly("import", "crontab", path, "--url", api.url)
    assert answer.code == 2
    assert api.requests == []
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert [line.split(" ")[1] for line in lines[:-1]] == [f"{path}:{n}:" for n in (2, 3, 4, 6)]
    assert "@reboot" in lines[0]
    assert "61" in lines[1]
    assert "never" in lines[2]
    assert "CRON_TZ of line 5: 'Mars'" in lines[3]
    assert "4 lines cannot be taken" in lines[4]


async def test_what_is_bad_is_left_out_if_asked(api: FakeApi, duly: Duly, crontab: Write) -> None:
    path = crontab("@reboot y", "@daily x")
    answer = await duly("import", "crontab", path, "--skip-bad", "--url", api.url)
    assert answer.code == 0
    assert f"{path}:1: @reboot" in answer.err
    assert [task["payload"]["command"] for task in sent(api)] == ["x"]


async def test_what_the_node_refuses_is_told_by_line(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    async def refuse(request: object) -> Any:
        errors = [{"field": "tasks[1].payload", "message": "is too large"}]
        return problem(422, "tasks[1].payload: is too large", errors=errors)

    api.before.append(refuse)
    path = crontab("@daily x", "", "@daily y")
    answer = await duly("import", "crontab", path, "--url", api.url)
    assert answer.code == 1
    assert f"{path}:3: payload: is too large" in answer.err


async def test_an_empty_crontab_is_no_work(api: FakeApi, duly: Duly, crontab: Write) -> None:
    answer = await duly("import", "crontab", crontab("# nothing"), "--url", api.url)
    assert (answer.code, answer.out) == (0, "0 imported, 0 there already\n")
    assert api.requests == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["/no/such/file"], "cannot read /no/such/file: No such file"),
        (["/dev/null", "--tz", "Mars"], "--tz: 'Mars' is not a time zone"),
        (["/dev/null", "--count", "101"], "--count: at most 100"),
        (["/dev/null", "--type-prefix", "a b"], "--type-prefix has"),
        (["/dev/null", "--type-prefix", "a" * 191], "--type-prefix has"),
    ],
)
async def test_wrong_arguments(duly: Duly, argv: list[str], says: str) -> None:
    answer = await duly("import", "crontab", *argv, "--url", NOBODY)
    assert answer.code == 2
    assert says in answer.err


async def test_a_node_that_is_not_there(duly: Duly, crontab: Write) -> None:
    answer = await duly("import", "crontab", crontab("@daily x"), "--url", NOBODY)
    assert answer.code == 1
    assert "does not answer" in answer.err


async def test_a_zone_without_a_name_must_be_given(
    duly: Duly, crontab: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST")
    answer = await duly("import", "crontab", crontab("@daily x"), "--url", NOBODY)
    assert answer.code == 2
    assert "give --tz" in answer.err


# Kinds of files


async def test_a_file_in_a_cron_d_has_user_names(api: FakeApi, duly: Duly, crontab: Write) -> None:
    path = crontab("@daily munin x y", name="cron.d/munin")
    await duly("import", "crontab", path, "--url", api.url)
    assert sent(api)[0]["payload"] == {"command": "x y", "user": "munin"}


async def test_a_copy_of_a_system_crontab_is_recognised(
    api: FakeApi, duly: Duly, crontab: Write
) -> None:
    answer = await duly("import", "crontab", crontab("@daily root x y"), "--url", api.url)
    assert sent(api)[0]["payload"] == {"command": "x y", "user": "root"}
    assert "a user name stands before each command" in answer.err


async def test_a_users_crontab_may_be_called_so(api: FakeApi, duly: Duly, crontab: Write) -> None:
    await duly("import", "crontab", crontab("@daily root x"), "--user", "--url", api.url)
    assert sent(api)[0]["payload"] == {"command": "root x"}


async def test_what_may_be_a_user_or_a_command_is_not_guessed(
    duly: Duly, crontab: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = next(one.pw_name for one in pwd.getpwall() if one.pw_name != "root")
    answer = await duly("import", "crontab", crontab(f"@daily {account} -s x"), "--url", NOBODY)
    assert answer.code == 2
    assert f"{account!r} a user or a command? Give --system or --user" in answer.err


async def test_standard_input(api: FakeApi, duly: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"@daily x\n")))
    await duly("import", "crontab", "-", "--url", api.url)
    assert sent(api)[0]["tags"] == {"crontab": "stdin"}


# The dry run


async def test_a_dry_run_shows_the_next_times_and_submits_nothing(
    duly: Duly, crontab: Write
) -> None:
    path = crontab("30 6 1 1 * root x", name="cron.d/y")
    answer = await duly(
        "import", "crontab", path, "--dry-run", "--count", 2, "--type-prefix", "a", "--url", NOBODY
    )
    assert answer.code == 0
    head, first, second = answer.out.splitlines()
    assert head == f"{path}:1  30 6 1 1 *  Europe/Berlin  a.shell  root  x"
    for line in (first, second):
        assert line.startswith("    2")
        assert line.endswith("-01-01T06:30:00+01:00")
    assert int(second.split("-")[0]) == int(first.split("-")[0]) + 1


async def test_a_dry_run_in_json(duly: Duly, crontab: Write) -> None:
    path = crontab("30 6 1 7 * x", name="cron")
    answer = await duly("import", "crontab", path, "--dry-run", "--json", "--url", NOBODY)
    shown = json.loads(answer.out)
    assert len(shown.pop("fire_times")) == 3
    assert shown.pop("notes") == []
    uuid.UUID(shown.pop("id"))
    assert shown == {
        "file": str(path), "line": 1, "type": "shell", "queue": "default",
        "schedule": {"cron": "30 6 1 7 *", "timezone": "Europe/Berlin"}, "payload": {"command": "x"},
    }  # fmt: skip


async def test_a_dry_run_says_what_changes_of_the_clock_do(duly: Duly, crontab: Write) -> None:
    path = crontab("30 2 * * SUN x")
    answer = await duly("import", "crontab", path, "--dry-run", "--count", 60, "--url", NOBODY)
    notes = [line for line in answer.out.splitlines() if line.startswith("    note: ")]
    assert len(notes) >= 2
    assert "runs once, at 03:00" in answer.out


async def test_a_dry_run_names_what_is_bad(duly: Duly, crontab: Write) -> None:
    answer = await duly("import", "crontab", crontab("@reboot x"), "--dry-run", "--url", NOBODY)
    assert answer.code == 2
    assert "@reboot is no time" in answer.err


async def test_an_import_in_json(api: FakeApi, duly: Duly, crontab: Write) -> None:
    path = crontab("@daily x")
    for imported in (True, False):
        answer = await duly("import", "crontab", path, "--json", "--url", api.url)
        shown = json.loads(answer.out)
        assert (shown["imported"], shown["status"], shown["line"]) == (imported, "pending", 1)
