"""duly archive export as a process: killed, on a full disk, with many rows, beside nodes that work."""

import gzip
import re
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from archive_rig import add, exported, names, read, with_days
from node_rig import running_node
from processes import Child, Processes
from store_rig import opened, query
from waiting import wait_for
from worker_rig import running

from duly.actors import upkeep as upkeep_actor
from duly.nodes.archive.verify import verify
from duly.nodes.worker import Worker
from duly.storage import upkeep
from duly.storage.archive import PARENTS
from duly.storage.migrate import migrate

PAGE = Path(__file__).parents[2] / "docs" / "archive.md"
WAIT_S = 120.0

# What the command does, within limits of its process; then how much memory it had at most.
LIMITED = """
import resource, sys
from duly.nodes.cli import main
size = int(sys.argv[1])
if size:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
code = main(sys.argv[2:])
print("peak KiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""

# The same, a little slower, so that it is killed in the middle also where the test is slow to notice.
SLOW = """
import sys, time
from duly.nodes.archive.writing import Written
from duly.nodes.cli import main
add = Written.add
Written.add = lambda *args: (time.sleep(0.05), add(*args))
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def url(fresh_database: str) -> str:
    return fresh_database


def command(url: str, to: Path, kind: str = "runs") -> list[str]:
    return ["archive", "export", "--kind", kind, "--database-url", url, "--to", str(to)]


async def ended(child: Child) -> int:
    """Its exit code."""
    return await anyio.to_thread.run_sync(child.wait, WAIT_S)


def check_whole(folder: Path) -> None:
    """Every file that is there under its own name is whole; none is there that nobody knows of, but the last."""
    if not (folder / "manifest.json").exists():
        assert [name for name in names(folder) if not name.startswith(".")] == []
        return
    wrong = [one for one in verify(folder) if one.wrong]
    assert len(wrong) <= 1
    for one in wrong:
        assert one.wrong is not None
        assert one.wrong.startswith("not in the manifest")
        read(folder / one.name)


async def test_an_export_that_is_killed_again_and_again_is_whole_in_the_end(
    url: str, processes: Processes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    async with opened(url) as db:
        days = await with_days(db, 4)
        for number, day in enumerate(days):
            await add(db, "runs", day, 10_000 + number, '"%s"' % ("x" * 100))
    kills = 0
    # Killed as soon as it has begun a file, or ended one; a little later each time.
    for wanted in [".part", "written", ".part", "written"]:
        child = processes.python("-c", SLOW, *command(url, out))

        def begun(child: Child = child, wanted: str = wanted) -> bool:
            if child.exit_code is not None or (wanted == "written" and "written" in child.output):
                return True
            return wanted == ".part" and any(
                path.stat().st_size for path in out.glob(".runs-*.part") if path.exists()
            )

        await wait_for(
            begun, WAIT_S, "the export has begun", ignore=(FileNotFoundError,), poll_s=0.001
        )
        kills += child.exit_code is None
        child.kill9()
        check_whole(out)
    assert kills
    assert await ended(processes.python("-m", "duly", *command(url, out))) == 0
    last = processes.python("-m", "duly", *command(url, out))
    assert await ended(last) == 0
    assert "written" not in last.output
    counts = exported(out)
    assert {day: counts[f"runs-{day}.jsonl.gz"] for day in days} == {
        day: 10_000 + number for number, day in enumerate(days)
    }
    assert {one.wrong for one in verify(out)} == {None}
    assert not [name for name in names(out) if name.endswith(".part")]
    tokens = [row["token"] for row in read(out / f"runs-{days[0]}.jsonl.gz")]
    assert sorted(tokens) == list(range(1, 10_001))


async def test_memory_does_not_grow_with_the_rows(
    url: str, processes: Processes, tmp_path: Path
) -> None:
    async def peak_kib(to: str) -> int:
        child = processes.python("-c", LIMITED, "0", *command(url, tmp_path / to))
        assert await ended(child) == 0, child.output
        return int(child.wait_for_line(r"^peak KiB (\d+)$")[1])

    async with opened(url, statement_timeout_s=60) as db:
        (day,) = await with_days(db, 1)
        await add(db, "runs", day, 1_000)
        few = await peak_kib("few")
        for _ in range(4):
            await add(db, "runs", day, 25_000, '"%s"' % ("x" * 500))
    many = await peak_kib("many")
    assert exported(tmp_path / "many")[f"runs-{day}.jsonl.gz"] == 101_000
    assert many - few < 30_000  # of 60 MB


async def test_a_full_disk_is_told_of_and_leaves_nothing_half_done(
    url: str, processes: Processes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    async with opened(url) as db:
        small, large = await with_days(db, 2)
        await add(db, "runs", small, 10)
        await add(db, "runs", large, 5_000)
        child = processes.python("-c", LIMITED, "50000", *command(url, out))
        assert await ended(child) == 1
        assert f"duly: {out}: File too large\n" in child.output
        assert exported(out)[f"runs-{small}.jsonl.gz"] == 10
        assert [name for name in names(out) if str(large) in name] == []
        assert {one.wrong for one in verify(out)} == {None}
        found = await upkeep.drop_old_days(db, await upkeep.server_time(db), exported=True)
        assert [old.day for old in found.unexported if old.parent == "runs"] == [large]
    assert await ended(processes.python("-m", "duly", *command(url, out))) == 0
    assert exported(out)[f"runs-{large}.jsonl.gz"] == 5_000


async def test_nodes_record_and_tidy_up_while_days_are_exported(
    url: str,
    redis_url: str,
    processes: Processes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep_actor, "_EVERY_S", 0.2)
    out = tmp_path / "out"
    worker = Worker(redis_url)

    @worker.task("t")
    async def handle(ctx: Any, payload: Any) -> Any:
        return payload

    settings: dict[str, Any] = {"retention_s": 60.0, "archive_before_drop": True}
    async with opened(url) as db:
        days = await with_days(db, 3)
        for day in days:
            await add(db, "runs", day, 3_000)
        async with (
            running_node(url, redis_url, **settings) as node,
            running_node(url, redis_url, owns_slots=False, **settings),
            running(worker),
        ):
            submitted = 0
            child = processes.python("-m", "duly", *command(url, out, "all"))
            while child.exit_code is None or submitted < 200:
                tasks = [{"type": "t", "payload": 1}] * 50
                submitted += len(await node.client.submit_batch(tasks))
                await anyio.sleep(0.05)

            async def all_done() -> bool:
                done = await query(
                    db, "select from finished_tasks where type = 't' and status = 'completed'"
                )
                return len(done) == submitted

            async def days_dropped() -> bool:
                found = await query(
                    db,
                    "select from pg_class where relname = any($1)",
                    [f"{table}_{day:%Y%m%d}" for table in PARENTS.values() for day in days],
                )
                return not found

            await wait_for(all_done, WAIT_S, "all tasks are recorded")
            await wait_for(days_dropped, WAIT_S, "the exported days are dropped")
    assert child.exit_code == 0, child.output
    assert {exported(out)[f"runs-{day}.jsonl.gz"] for day in days} == {3_000}


# What docs/archive.md says of reading files


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(text)


async def filled(url: str, processes: Processes, out: Path) -> Any:
    """Export a day with five runs and four tasks; answers the day."""
    async with opened(url) as db:
        (day,) = await with_days(db, 1)
        await add(db, "runs", day, 5)
        await add(db, "tasks", day, 4, '{"text": "\\\\ \\n \\" , \\u0001", "n": 1.10}')
    assert await ended(processes.python("-m", "duly", *command(url, out, "all"))) == 0
    return day


async def test_the_files_can_be_read_with_python(
    url: str, processes: Processes, tmp_path: Path
) -> None:
    day = await filled(url, processes, tmp_path)
    of_page: dict[str, Any] = {}
    exec(compile(block("python"), "archive.md", "exec"), of_page)  # noqa: S102 - our own page
    path = tmp_path / f"runs-{day}.jsonl.gz"
    assert of_page["outcomes"](path) == {"completed": 5}
    assert [str(row["result"]["n"]) for row in of_page["rows"](path)] == ["1.10"] * 5


async def test_the_files_go_into_a_database_again(
    url: str, blank_database: str, processes: Processes, tmp_path: Path
) -> None:
    day = await filled(url, processes, tmp_path)
    create, copy, insert = block("sql").splitlines()
    options = (
        r"""\copy lines from 'runs.jsonl' with (format csv, quote e'\x01', delimiter e'\x02')"""
    )
    assert copy == options
    await migrate(blank_database)
    for kind, table in (("runs", "runs"), ("tasks", "finished_tasks")):
        lines = tmp_path / f"{kind}.jsonl"
        packed = (tmp_path / f"{kind}-{day}.jsonl.gz").read_bytes()
        lines.write_bytes(gzip.decompress(packed))
        loaded = await asyncpg.connect(blank_database)
        try:
            await loaded.execute(create)
            await loaded.copy_to_table(
                "lines", source=lines, format="csv", quote="\x01", delimiter="\x02"
            )
            await loaded.execute(insert.replace("runs", table))
            rows = await loaded.fetch(f"select row_to_json(t)::text from {table} t order by 1")
        finally:
            await loaded.close()
        async with opened(url) as db:
            assert rows == await query(db, f"select row_to_json(t)::text from {table} t order by 1")
        assert len(rows) in (4, 5)
