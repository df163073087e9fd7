"""duly apply and duly export on a real node."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from hand_worker import HandWorker
from node_rig import RunningNode

from duly.nodes.cli import main
from duly.nodes.client import NotFound, SyncClient
from duly.nodes.declared.applying import Applying
from duly.nodes.declared.reading import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "schedules" / "team.toml"

Run = Callable[..., Coroutine[Any, Any, tuple[int, list[str], str]]]


@pytest.fixture
def run(node: RunningNode, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; answers its exit code, the lines of its output, and what it complains of."""

    async def call(*words: object) -> tuple[int, list[str], str]:
        code = await anyio.to_thread.run_sync(main, [*map(str, words), "--url", node.url])
        shown = capsys.readouterr()
        return code, shown.out.splitlines(), shown.err

    return call


def written(path: Path, **schedules: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"owner": "a", "schedules": schedules}))
    return path


DAILY: dict[str, Any] = {
    "type": "t",
    "schedule": {"cron": "0 3 * * *"},
    "payload": {"n": [1, None]},
}


async def test_what_is_applied_is_there_and_applied_again_changes_nothing(
    node: RunningNode, run: Run
) -> None:
    code, lines, _ = await run("apply", EXAMPLE, "--dry-run")
    assert code == 2
    assert [line.split()[:2] for line in lines[:3]] == [
        ["+", "nightly-report"], ["+", "currency-rates"], ["+", "cleanup/sessions"],
    ]  # fmt: skip
    assert [task async for task in node.client.list()] == []
    code, lines, _ = await run("apply", EXAMPLE)
    assert (code, lines[-1]) == (0, "added 3, changed 0, replaced 0, deleted 0; unchanged 0")
    before = {task.name: task async for task in node.client.list()}
    assert (await run("apply", EXAMPLE, "--prune"))[:2] == (
        0, ["added 0, changed 0, replaced 0, deleted 0; unchanged 3"],
    )  # fmt: skip
    assert (await run("apply", EXAMPLE, "--dry-run"))[0] == 0
    assert {task.name: task async for task in node.client.list()} == before
    assert (before["nightly-report"].queue, before["cleanup/sessions"].queue) == (
        "reports",
        "default",
    )


async def test_what_differs_is_changed_in_place_and_shown(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    file = written(tmp_path / "s.json", one=DAILY, two=DAILY)
    await run("apply", file)
    first = await node.client.get_by_name("one")
    changed = {**DAILY, "schedule": {"cron": "0 4 * * *"}, "payload": None, "concurrency_key": "k"}
    file = written(tmp_path / "s.json", one=changed, two=DAILY)
    code, lines, _ = await run("apply", file, "--dry-run")
    assert code == 2
    assert lines[:-1] == [
        "~ one", '    payload: {"n":[1,null]} -> null',
        '    schedule: {"cron":"0 3 * * *","timezone":"UTC"} -> {"cron":"0 4 * * *","timezone":"UTC"}',
        '    concurrency_key: null -> "k"', "    concurrency_limit: null -> 1",
    ]  # fmt: skip
    code, lines, _ = await run("apply", file, "--json")
    assert code == 0
    assert [json.loads(line)["action"] for line in lines] == ["change", "keep"]
    now = await node.client.get_by_name("one")
    assert (now.id, now.payload, now.concurrency_key) == (first.id, None, "k")
    assert now.schedule == {"cron": "0 4 * * *", "timezone": "UTC"}
    assert (await run("apply", file, "--dry-run"))[0] == 0


async def test_what_cannot_be_changed_is_replaced_only_if_asked_for(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    file = written(tmp_path / "s.json", one=DAILY)
    await run("apply", file)
    first = await node.client.get_by_name("one")
    file = written(tmp_path / "s.json", one={**DAILY, "type": "other"}, new=DAILY)
    code, _, complaint = await run("apply", file)
    assert code == 1
    assert "cannot be changed in place: one (type)" in complaint
    with pytest.raises(NotFound):  # nothing of it was done
        await node.client.get_by_name("new")
    code, lines, _ = await run("apply", file, "--replace")
    assert (code, lines[0]) == (0, "-/+ one")
    assert (await node.client.get(first.id)).status == "cancelled"
    assert (await node.client.get_by_name("one")).type == "other"


async def test_only_what_the_owner_applied_is_pruned(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    await node.client.submit("t", name="by-hand", schedule={"every": 3600})
    await run("apply", written(tmp_path / "a.json", one=DAILY, two=DAILY))
    await run("apply", written(tmp_path / "b.json", three=DAILY), "--owner", "b")
    file = written(tmp_path / "a.json", one=DAILY)
    assert (await run("apply", file))[1] == [
        "added 0, changed 0, replaced 0, deleted 0; unchanged 1"
    ]
    code, lines, _ = await run("apply", file, "--prune", "--dry-run")
    assert (code, lines[0]) == (2, "- two")
    assert (await run("apply", file, "--prune"))[0] == 0
    left = [task.name async for task in node.client.list() if task.finished_at is None]
    assert sorted(name or "" for name in left) == ["by-hand", "one", "three"]
    code, _, complaint = await run("apply", written(tmp_path / "a.json", three=DAILY))
    assert code == 1
    assert "three is applied by 'b'" in complaint
    assert (await run("apply", tmp_path / "a.json", "--take-over"))[0] == 0
    assert (await node.client.get_by_name("three")).tags == {"applied-by": "a"}


async def test_a_wrong_file_changes_nothing_and_is_told_by_field(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    file = written(tmp_path / "s.json", good=DAILY, bad={**DAILY, "priority": 11})
    code, _, complaint = await run("apply", file)
    assert code == 2
    assert f"{file}: schedules.bad.priority: " in complaint
    assert (await run("apply", file, "--dry-run"))[0] == 1
    assert [task async for task in node.client.list()] == []


async def test_a_running_task_is_waited_for(
    node: RunningNode, run: Run, tmp_path: Path, redis_url: str
) -> None:
    await run("apply", written(tmp_path / "s.json", one=DAILY))
    task = await node.client.get_by_name("one")
    async with HandWorker(redis_url) as worker:
        await worker.live()
        await node.client.run_now(task.id)
        taken = await worker.take()
        file = written(tmp_path / "s.json", one={**DAILY, "priority": 9}, two=DAILY)
        code, lines, complaint = await run("apply", file, "--wait", "0")
        assert code == 1
        assert "one: " in complaint
        assert "running" in complaint
        assert lines[0].startswith("+ two"), "the others are not kept from it"
        applying = asyncio.create_task(run("apply", file, "--wait", "600"))
        await worker.report(taken, "completed")
        assert (await applying)[0] == 0
    assert (await node.client.get_by_name("one")).priority == 9


async def test_many_at_once_leave_one_of_each_name(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    """And each as one of them declares it."""
    names = [f"n{number}" for number in range(10)]
    files = [
        written(tmp_path / f"{priority}.json", **{name: {**DAILY, "priority": priority} for name in names})
        for priority in range(4)
    ]  # fmt: skip

    def apply(file: Path) -> None:
        declared = read(file.read_text(), is_json=True, now_us=time.time_ns() // 1000)
        with SyncClient(node.url) as client:
            applying = Applying(client, declared, take_over=False, replace=False, wait_s=60)
            for one in applying.plan(prune=True):
                applying.carry_out(one)

    await asyncio.gather(*(anyio.to_thread.run_sync(apply, file) for file in files))
    found = [task async for task in node.client.list()]
    assert sorted(task.name or "" for task in found) == names
    assert all(task.priority in range(4) for task in found)
    assert (await run("apply", files[0]))[0] == 0
    assert {task.priority async for task in node.client.list()} == {0}


@pytest.mark.parametrize("kind", ["toml", "json"])
async def test_what_is_exported_applies_to_nothing(
    node: RunningNode, run: Run, tmp_path: Path, kind: str
) -> None:
    odd = {
        **DAILY, "payload": {'a"b\n\x7f': [1, 2.5, -3, True, {"": {}}, []]}, "tags": {"é x": "\\"},
        "schedule": {"every": 0.5, "jitter": 0.25, "max_runs": 3, "start_at": "2030-01-01T00:00:00Z"},
        "backoff": {"kind": "fixed", "delay": 1}, "misfire_grace": 5, "on_lost": "fail", "queue": "q/1",
        "concurrency_key": "k", "concurrency_limit": 2, "fairness_key": "f", "overrun": "queue",
        "timeout": 7.5, "max_retries": 0, "priority": 1,
    }  # fmt: skip
    await run(
        "apply", written(tmp_path / "s.json", **{"a/b.c:d": odd, "plain": {**DAILY, "payload": 5}})
    )
    await node.client.submit("t", name="by-hand", schedule={"every": 3600})
    await node.client.submit("t", schedule={"every": 3600})
    code, lines, complaint = await run("export", "--owner", "a", "--format", kind)
    assert code == 0
    assert complaint == ""
    file = tmp_path / f"out.{kind}"
    file.write_text("\n".join(lines))
    code, lines, _ = await run("apply", file, "--prune", "--dry-run")
    assert (code, lines) == (0, ["to be added 0, changed 0, replaced 0, deleted 0; unchanged 2"])
    code, lines, complaint = await run("export", "--format", kind)
    assert (
        complaint.strip() == "duly: not written: 1 have no name; others are applied by a (--owner)"
    )
    file.write_text("\n".join(lines))
    assert (await run("apply", file, "--dry-run"))[1][-1].endswith("unchanged 1")


async def test_toml_cannot_say_null(node: RunningNode, run: Run, tmp_path: Path) -> None:
    await run("apply", written(tmp_path / "s.json", one=DAILY))
    code, _, complaint = await run("export", "--owner", "a")
    assert code == 1
    assert (
        "schedules.one.payload.n[1] holds null, which TOML cannot say: use --format json"
        in complaint
    )
    assert (await run("export", "--owner", "a", "--format", "json"))[0] == 0


async def test_what_follows_a_schedule_is_declared_and_exported_with_it(
    node: RunningNode, run: Run, tmp_path: Path
) -> None:
    alarm: dict[str, Any] = {
        "type": "alarm",
        "payload": {"n": [1, None]},
        "on_failure": {"type": "louder"},
    }
    file = written(tmp_path / "s.json", one={**DAILY, "payload": 1, "on_failure": alarm})
    assert (await run("apply", file))[0] == 0
    assert (await run("apply", file, "--dry-run"))[0] == 0
    _, lines, _ = await run("export", "--owner", "a", "--format", "json")
    (tmp_path / "out.json").write_text("\n".join(lines))
    assert (await run("apply", tmp_path / "out.json", "--dry-run"))[0] == 0
    alarm["payload"] = 2
    file = written(tmp_path / "s.json", one={**DAILY, "payload": 1, "on_failure": alarm})
    code, _, complaint = await run("apply", file)
    assert code == 1
    assert "cannot be changed in place: one (on_failure)" in complaint
    assert (await run("apply", file, "--replace"))[0] == 0
    code, lines, _ = await run("export", "--owner", "a")
    assert code == 0  # none of the nulls that a follow-up is stored with
    (tmp_path / "out.toml").write_text("\n".join(lines))
    assert (await run("apply", tmp_path / "out.toml", "--dry-run"))[0] == 0
