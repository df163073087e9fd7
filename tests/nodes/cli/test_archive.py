"""duly archive: whole days to files, each there only when it is whole."""

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from archive_rig import add, days_ago, exported, names, read, with_days
from store_rig import opened, query

from duly.nodes.archive import export, folder
from duly.nodes.archive.writing import Written
from duly.storage import archive, upkeep
from duly.storage.database import Database

Duly = Callable[..., Awaitable[Any]]


@pytest.fixture
async def db(fresh_database: str) -> AsyncIterator[Database]:
    async with opened(fresh_database) as pool:
        yield pool


@pytest.fixture
def go(duly: Duly, fresh_database: str, tmp_path: Path) -> Duly:
    """Exports to the folder `out`."""

    async def run(*argv: object, to: Path = tmp_path / "out") -> Any:
        return await duly("archive", "export", "--database-url", fresh_database, "--to", to, *argv)

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


async def test_each_day_of_each_kind_is_a_file(db: Database, go: Duly, out: Path) -> None:
    old, new = await with_days(db, 2)
    await add(db, "runs", old, 3)
    await add(
        db, "tasks", old, 2, '{"exact": 12345678901234567890.10, "text": "\\\\ \\n \\u0001 ü"}'
    )
    await add(db, "runs", new, 1)
    answer = await go()
    assert answer.code == 0, answer.err
    counts = {
        name: rows for name, rows in exported(out).items() if str(old) in name or str(new) in name
    }
    assert counts == {
        f"runs-{old}.jsonl.gz": 3, f"runs-{new}.jsonl.gz": 1,
        f"tasks-{old}.jsonl.gz": 2, f"tasks-{new}.jsonl.gz": 0,
    }  # fmt: skip
    (_, line) = gzip.decompress((out / f"tasks-{old}.jsonl.gz").read_bytes()).decode().splitlines()
    assert "12345678901234567890.10" in line
    row = json.loads(line)
    assert row["payload"]["text"] == "\\ \n \x01 ü"
    assert (row["interval"], row["status"], row["tags"]) == ("PT1M30S", "completed", {"a": "b"})
    assert read(out / f"tasks-{new}.jsonl.gz") == []
    assert all((out / name).stat().st_mode & 0o777 == 0o600 for name in names(out))
    assert f"runs-{await days_ago(db, 0)}.jsonl.gz" not in names(out)  # it is not over


async def test_what_is_there_and_right_is_kept(db: Database, go: Duly, out: Path) -> None:
    days = await with_days(db, 2)
    for day in days:
        await add(db, "runs", day, 2)
    await go("--kind", "runs")
    before = {name: (out / name).stat().st_ino for name in names(out) if name.endswith(".gz")}
    damaged = out / f"runs-{days[0]}.jsonl.gz"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (out / f"runs-{days[1]}.jsonl.gz").touch()
    answer = await go("--kind", "runs")
    said = dict(reversed(line.split()[:2]) for line in answer.out.splitlines())
    assert said.pop(damaged.name) == "written"
    assert set(said.values()) == {"kept"}
    assert len(read(damaged)) == 2
    assert (out / f"runs-{days[1]}.jsonl.gz").stat().st_ino == before[f"runs-{days[1]}.jsonl.gz"]


async def test_which_days(db: Database, go: Duly, out: Path) -> None:
    await with_days(db, 4)
    day = [await days_ago(db, n) for n in range(5)]
    await go("--kind", "runs", "--older-than", "2d")
    assert f"runs-{day[3]}.jsonl.gz" in names(out)
    assert f"runs-{day[2]}.jsonl.gz" not in names(out)
    assert not [name for name in names(out) if name.startswith("tasks")]
    await go("--kind", "tasks", "--before", day[3])
    assert f"tasks-{day[4]}.jsonl.gz" in names(out)
    assert f"tasks-{day[3]}.jsonl.gz" not in names(out)
    await go("--before", day[0] + timedelta(days=9))  # not those that are not over
    assert f"runs-{day[1]}.jsonl.gz" in names(out)
    assert f"runs-{day[0]}.jsonl.gz" not in names(out)


async def test_days_in_the_default_partition_are_days_too(
    db: Database, go: Duly, out: Path
) -> None:
    old, older = await days_ago(db, 30), await days_ago(db, 31)
    for day, count in ((old, 2), (older, 3)):
        await add(db, "runs", day, count)
    await go()
    assert exported(out) == {f"runs-{older}.jsonl.gz": 3, f"runs-{old}.jsonl.gz": 2}
    found = await upkeep.drop_old_days(db, await upkeep.server_time(db), exported=True)
    assert (found.dropped, found.unexported) == (2, [])
    assert await query(db, "select from runs") == []


async def test_rows_that_come_after_an_export_are_not_lost(
    db: Database, go: Duly, out: Path
) -> None:
    (day,) = await with_days(db, 1)
    stray = await days_ago(db, 30)
    for one in (day, stray):
        await add(db, "runs", one, 2)
    await go("--kind", "runs")
    for one in (day, stray):
        await add(db, "runs", one, 1)
    now = await upkeep.server_time(db)
    found = await upkeep.drop_old_days(db, now, exported=True)
    assert {old.day for old in found.unexported if old.parent == "runs"} == {day, stray}
    answer = await go("--kind", "runs")
    assert answer.out.count("written") == 2
    assert {exported(out)[f"runs-{one}.jsonl.gz"] for one in (day, stray)} == {3}
    found = await upkeep.drop_old_days(db, now, exported=True)
    assert [old for old in found.unexported if old.parent == "runs"] == []


@pytest.mark.parametrize("stray", [False, True])
async def test_rows_that_come_after_their_day_was_dropped_have_a_file_of_their_own(
    db: Database, go: Duly, out: Path, stray: bool
) -> None:
    day = await days_ago(db, 30)
    if not stray:
        await upkeep.make_partitions(db, day)
    await add(db, "runs", day, 3)
    await go("--kind", "runs")
    now = await upkeep.server_time(db)
    await upkeep.drop_old_days(db, now, exported=True)
    await add(db, "runs", day, 1)
    found = await upkeep.drop_old_days(db, now, exported=True)
    assert [(old.day, old.stray) for old in found.unexported if old.parent == "runs"] == [
        (day, True)
    ]
    await go("--kind", "runs")
    counts = exported(out)
    assert counts[f"runs-{day}.jsonl.gz"] == 3
    assert counts[f"runs-{day}.2.jsonl.gz"] == 1
    found = await upkeep.drop_old_days(db, now, exported=True)
    assert [old for old in found.unexported if old.parent == "runs"] == []


async def test_rows_that_come_while_the_default_partition_is_emptied_are_exported(
    db: Database, go: Duly, out: Path
) -> None:
    day = await days_ago(db, 30)
    await add(db, "runs", day, 3)
    await go("--kind", "runs")
    await query(db, "update archived_days set dropping = true")  # as if killed after some thousands
    assert "gone" in (await go("--kind", "runs")).out
    assert exported(out) == {f"runs-{day}.jsonl.gz": 3}
    await query(db, "delete from runs where token < 3")
    await add(db, "runs", day, 1)
    await go("--kind", "runs")
    assert exported(out) == {f"runs-{day}.jsonl.gz": 3, f"runs-{day}.2.jsonl.gz": 2}


@pytest.mark.parametrize("dropped", [False, True])
async def test_a_day_that_changes_while_it_is_read_leaves_the_file_that_was_there(
    db: Database,
    go: Duly,
    out: Path,
    fresh_database: str,
    monkeypatch: pytest.MonkeyPatch,
    dropped: bool,
) -> None:
    (day,) = await with_days(db, 1)
    await add(db, "runs", day, 3)
    await go("--kind", "runs")
    await add(db, "runs", day, 1)
    real, counts = archive.Archive.unchanged, []

    async def changed(store: Any, which: Any, state: Any) -> bool:
        async with opened(fresh_database) as own:
            if dropped:
                await upkeep.drop_old_days(own, await upkeep.server_time(own))
            elif which.day == day:
                await add(own, "runs", day, 1)
        counts.append(exported(out)[f"runs-{day}.jsonl.gz"])
        return await real(store, which, state)

    monkeypatch.setattr(archive.Archive, "unchanged", changed)
    answer = await go("--kind", "runs")
    assert answer.code == 1
    assert set(counts) == {3}
    said = "gone  " if dropped else "rows are added to this day all the time"
    assert said in answer.out + answer.err
    assert len(read(out / f"runs-{day}.jsonl.gz")) == 3


async def test_a_partition_made_for_a_day_that_was_exported_is_exported_anew(
    db: Database, go: Duly, out: Path
) -> None:
    day = await days_ago(db, 3)
    await add(db, "runs", day, 2)
    await go("--kind", "runs")
    await upkeep.make_partitions(db, day)
    await add(db, "runs", day, 1)
    found = await upkeep.drop_old_days(db, await upkeep.server_time(db), exported=True)
    assert day in {old.day for old in found.unexported if old.parent == "runs"}
    await go("--kind", "runs")
    assert exported(out)[f"runs-{day}.jsonl.gz"] == 3


async def test_a_file_without_its_note_is_noted_without_reading_the_day_again(
    db: Database, go: Duly, out: Path
) -> None:
    (day,) = await with_days(db, 1)
    await go("--kind", "runs")
    await query(db, "update archived_days set exported_at = null")  # as if killed before the note
    answer = await go("--kind", "runs")
    assert "written" not in answer.out
    rows = await query(
        db, "select from archived_days where day = $1 and exported_at > $2", day, day
    )
    assert len(rows) == 1


async def test_a_day_that_is_dropped_meanwhile_is_told_of(
    db: Database, go: Duly, fresh_database: str, monkeypatch: pytest.MonkeyPatch, out: Path
) -> None:
    (day,) = await with_days(db, 1)
    real = export._watch

    async def then_dropped(*args: Any) -> Any:
        watched = await real(*args)
        async with opened(fresh_database) as own:
            await query(own, f"drop table runs_{args[1].day:%Y%m%d}")
        return watched

    monkeypatch.setattr(export, "_watch", then_dropped)
    answer = await go("--kind", "runs")
    assert answer.code == 1
    assert f"gone     runs-{day}.jsonl.gz  dropped meanwhile\n" in answer.out
    assert not [name for name in names(out) if name.startswith(".")]


async def test_what_is_being_read_is_not_dropped(
    db: Database, go: Duly, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = await with_days(db, 2)
    for day in days:
        await add(db, "runs", day, 2)
    now = await upkeep.server_time(db)
    seen: list[upkeep.Dropped] = []
    real = export._write

    async def with_upkeep(store: Any, source: Any, to: Any, day: Any, watched: Any) -> Any:
        async with store.reading(day, watched):
            if day.day == days[1]:
                async with opened(fresh_database) as own:
                    seen.append(await upkeep.drop_old_days(own, now))
        return await real(store, source, to, day, watched)

    monkeypatch.setattr(export, "_write", with_upkeep)
    answer = await go("--kind", "runs")
    assert answer.code == 0
    (found,) = seen
    assert found.locked == 1
    assert found.dropped > 1  # the days before it, too: an export locks no other
    assert await query(db, "select from runs") != []


async def test_list_and_verify(db: Database, go: Duly, duly: Duly, out: Path) -> None:
    (day,) = await with_days(db, 1)
    await add(db, "runs", day, 2)
    await go("--kind", "runs")
    answer = await duly("archive", "list", out, "--json")
    listed = {one["name"]: one for one in map(json.loads, answer.out.splitlines())}
    name = f"runs-{day}.jsonl.gz"
    assert (listed[name]["rows"], listed[name]["kind"], listed[name]["day"]) == (
        2,
        "runs",
        str(day),
    )
    answer = await duly("archive", "list", out)
    assert f"{name}  2 rows  " in answer.out
    answer = await duly("archive", "verify", out)
    assert answer.code == 0
    assert f"{name}  ok\n" in answer.out
    good = (out / name).read_bytes()
    manifest = json.loads((out / "manifest.json").read_text())
    for wrong, said in (
        (good[:-5], "bytes, not"),
        (good[:-1] + bytes([good[-1] ^ 1]), "its SHA-256 is another one"),
        (None, "No such file"),
    ):
        (out / name).unlink()
        if wrong is not None:
            (out / name).write_bytes(wrong)
        answer = await duly("archive", "verify", out)
        assert answer.code == 1
        assert said in answer.out
    (out / name).write_bytes(good)
    manifest["files"][name]["rows"] = 3
    (out / "manifest.json").write_text(json.dumps(manifest))
    (out / "runs-1999-01-01.jsonl.gz").touch()
    answer = await duly("archive", "verify", out)
    assert f"{name}  2 rows, not 3\n" in answer.out
    assert "runs-1999-01-01.jsonl.gz  not in the manifest" in answer.out
    assert answer.err == "duly: 2 files are not what the manifest says\n"


async def test_a_wrong_folder(
    db: Database, go: Duly, duly: Duly, tmp_path: Path, out: Path
) -> None:
    await with_days(db, 1)
    (tmp_path / "file").touch()
    for to, said in (
        (tmp_path / "file", "File exists"),
        (tmp_path / "no" / "such", "No such file or directory"),
    ):
        answer = await go(to=to)
        assert (answer.code, answer.out) == (1, "")
        assert said in answer.err
    assert (await go()).code == 0
    before = {name: (out / name).read_bytes() for name in names(out)}
    await query(db, "update archive_source set id = gen_random_uuid()")
    answer = await go()
    assert "is the archive of another store: give each a folder of its own" in answer.err
    for text, said in (
        ("{}", "is not the manifest of an archive"),
        ("[1]", "is not the manifest of an archive"),
        ('{"format": 2, "any": 1}', "is of format 2: upgrade duly"),
    ):
        (out / "manifest.json").write_text(text)
        answer = await go()
        assert answer.code == 1
        assert said in answer.err
    assert {name: (out / name).read_bytes() for name in names(out)} == {
        **before, "manifest.json": b'{"format": 2, "any": 1}',
    }  # fmt: skip
    answer = await duly("archive", "verify", tmp_path)
    assert answer.err == f"duly: {tmp_path} is no archive: it has no manifest.json\n"


async def test_of_several_stores_one_is_named(
    db: Database, duly: Duly, fresh_database: str, out: Path
) -> None:
    await with_days(db, 1)
    words = ("archive", "export", "--to", out, "--database-urls")
    several = (*words, f"{fresh_database},postgresql://127.0.0.1:1/x")
    answer = await duly(*several)
    assert (answer.code, answer.err) == (2, "duly: there are 2 stores: give --store, from 0 to 1\n")
    answer = await duly(*several, "--store", "2")
    assert answer.err == "duly: there is no store 2: they are numbered from 0 to 1\n"
    assert (await duly(*several, "--store", "1")).code == 1
    assert (await duly(*several, "--store", "0")).code == 0
    assert (await duly(*words, fresh_database)).code == 0


async def test_two_exports_do_not_write_to_one_folder(db: Database, go: Duly, out: Path) -> None:
    await with_days(db, 1)
    store = (await query(db, "select id from archive_source"))[0]["id"]
    with folder.locked(out, store):
        answer = await go()
    assert answer.err == f"duly: another export is writing to {out}\n"
    assert (await go()).code == 0


async def test_trouble_with_the_disk_leaves_nothing_half_done(
    db: Database, go: Duly, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (day,) = await with_days(db, 1)
    await add(db, "runs", day, 2)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Written, "add", full)
    answer = await go("--kind", "runs")
    assert answer.code == 1
    assert answer.err == f"duly: {out}: No space left on device\n"
    assert not [name for name in names(out) if str(day) in name]
    rows = await query(
        db, "select from archived_days where day = $1 and exported_at > $2", day, day
    )
    assert rows == []


async def test_what_an_end_by_force_left_is_removed(db: Database, go: Duly, out: Path) -> None:
    await with_days(db, 1)
    out.mkdir()  # noqa: ASYNC240
    (out / ".runs-2026-01-01.jsonl.gz.part").write_text("half")
    (out / "lost+found").mkdir()  # as on a fresh disk
    assert (await go()).code == 0
    assert not [name for name in names(out) if name.endswith(".part")]


async def test_no_postgresql_and_another_schema(
    db: Database, duly: Duly, go: Duly, out: Path
) -> None:
    answer = await duly("archive", "export", "--to", out)
    assert (answer.code, out.exists()) == (2, False)  # noqa: ASYNC240
    answer = await duly(
        "archive", "export", "--to", out, "--database-url", "postgresql://127.0.0.1:1/x"
    )
    assert answer.code == 1
    assert answer.err.startswith("duly: no connection to PostgreSQL: ")
    await query(db, "delete from duly_migrations where version > 3")
    answer = await go()
    assert "the schema is of version 3, this is for version" in answer.err
    assert not out.exists()  # noqa: ASYNC240


@pytest.mark.parametrize(
    "argv",
    [
        ("--older-than", "5x"), ("--older-than", "-1d"), ("--before", "yesterday"),
        ("--before", "2026-11-29", "--older-than", "5d"), ("--kind", "audit"),
    ],
)  # fmt: skip
async def test_what_is_asked_for_wrongly(go: Duly, argv: tuple[str, ...]) -> None:
    assert (await go(*argv)).code == 2


async def test_a_day_that_somebody_has_locked(
    db: Database, go: Duly, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (day,) = await with_days(db, 1)
    monkeypatch.setattr(export, "_TRIES", 2)
    connection = await asyncpg.connect(fresh_database)
    async with connection.transaction():
        await connection.execute(f"lock table runs_{day:%Y%m%d} in row exclusive mode")
        answer = await go("--kind", "runs")
    await connection.close()
    assert answer.code == 1
    assert f"runs-{day}.jsonl.gz: somebody writes to this day" in answer.err
