"""The index of queue and type has waiting tasks alone: claims leave it as it is, and lists find who runs without it."""

import re
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from store_rig import ME, NOW, new_task, own_all, query

from duly.storage import claims, listing, submitting
from duly.storage.database import Database
from duly.storage.listing import Filter
from duly.storage.queries import statements
from duly.storage.slots import DueRow

KINDS = [("q", "a"), ("q", "b"), ("r", "a"), ("r", "b")]
COUNT = 120
_KINDS_ASKED: list[dict[str, Any]] = [{"queue": "q"}, {"type": "a"}, {"queue": "q", "type": "a"}]
_MORE_ASKED: list[dict[str, Any]] = [
    {}, {"status": "pending"}, {"status": "running"}, {"tag": '{"n": "1"}'}, {"due_after": NOW},
    {"due_after": NOW, "status": "running"}, {"paused": False}, {"periodic": False},
    {"tag": '{"n": "1"}', "periodic": False},
]  # fmt: skip
FILTERS = [Filter(**kind, **more) for kind in _KINDS_ASKED for more in _MORE_ASKED]


async def waiting(db: Database, first: int, count: int) -> list[DueRow]:
    """Tasks with these numbers as ids, of each kind in turn."""
    new = [
        new_task(
            id=UUID(int=n), queue=KINDS[n % 4][0], type=KINDS[n % 4][1], tags=f'{{"n": "{n % 3}"}}'
        )
        for n in range(first, first + count)
    ]
    made = {answer.id: answer.slot for answer in await submitting.submit(db, new, NOW, NOW)}
    return [DueRow(one.id, made[one.id] or 0, NOW, 0, one.priority, one.queue) for one in new]


async def some_running(db: Database) -> set[int]:
    """Of `COUNT` tasks a third of each kind runs; answers which."""
    rows = await waiting(db, 0, COUNT)
    runs = [row for row in rows if row.id.int // 4 % 3 == 0]
    claim = await claims.claim(db, ME, runs, await own_all(db), NOW)
    assert len(claim.tasks) == len(runs) == COUNT // 3
    return {row.id.int for row in runs}


def expected(where: Filter, running: set[int]) -> list[tuple[int, str]]:
    found = []
    for n in reversed(range(COUNT)):
        queue, kind = KINDS[n % 4]
        status = "running" if n in running else "pending"
        if (
            where.queue in (None, queue)
            and where.type in (None, kind)
            and where.status in (None, status)
            and (where.tag is None or n % 3 == 1)
        ):
            found.append((n, status))
    return found


async def listed(db: Database, where: Filter, limit: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    after: UUID | None = None
    while True:
        page = await listing.page(db, where, after, limit)
        found += [(row.id.int, row.status) for row in page.items]
        if page.after is None:
            return found
        after = page.after


async def test_a_claim_does_not_touch_the_index(db: Database) -> None:
    rows, epochs = await waiting(db, 0, 220), await own_all(db)

    async def look(connection: Any) -> dict[str, int]:
        class Here:
            @staticmethod
            async def fetch(name: str, *args: Any) -> Any:
                return await connection.fetch(Database.sql(name), *args)

        async def touched() -> dict[str, int]:
            """Blocks of each index of `tasks` that this transaction has asked for."""
            found = await connection.fetch(
                "select indexrelid::regclass::text as name,"
                " pg_stat_get_xact_blocks_fetched(indexrelid) as blocks"
                " from pg_index where indrelid = 'tasks'::regclass"
            )
            return {row["name"]: row["blocks"] for row in found}

        async def claim(some: list[DueRow]) -> None:
            one = await claims.claim(Here, ME, some, epochs, NOW)  # type: ignore[arg-type]
            assert len(one.tasks) == len(some)

        async with connection.transaction():
            await claim(rows[:20])  # to plan a statement, each index is looked at once
            before = await touched()
            await claim(rows[20:])
            after = await touched()
        return {name: after[name] - before[name] for name in after}

    blocks = await db.run(look)
    assert blocks["tasks_running"] >= 200
    assert blocks["tasks_waiting_kind"] < 20, blocks


async def test_lists_of_a_kind_have_who_waits_and_who_runs(db: Database) -> None:
    running = await some_running(db)
    for where in FILTERS:
        for limit in (1, 7, 1000):
            assert await listed(db, where, limit) == expected(where, running), (where, limit)


@pytest.mark.parametrize("search_s", [0.0, 60.0])
async def test_lists_of_a_kind_when_more_run_than_are_read_at_once(
    db: Database, search_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then everything is looked through for them, a few at a time, beside the others that the index finds."""
    running = await some_running(db)
    gave_up = 0
    find = listing._Search._find

    async def noted(search: listing._Search, connection: Any, way: str) -> Any:
        nonlocal gave_up
        found = await find(search, connection, way)
        gave_up += way == "list_tasks_running" and found.bound is not None
        return found

    monkeypatch.setattr(listing._Search, "_find", noted)
    monkeypatch.setattr(listing, "_SEARCH_S", search_s)
    monkeypatch.setattr(Database, "sql", _small(Database.sql))
    for where in FILTERS:
        for limit in (2, 1000):
            gave_up = 0
            assert await listed(db, where, limit) == expected(where, running), (where, limit)
            assert (gave_up > 0) is (where.status != "pending"), where


def _small(sql: Callable[[str], str]) -> Callable[[str], str]:
    """Each reads a few rows at once, and the running ones are too many."""

    def small(name: str) -> str:
        text = sql(name)
        if name == "list_tasks_running":
            assert text.count("30000") == 2
        return re.sub(r"\b2500\b", "5", text.replace("30000", str(COUNT // 3)))

    return small


async def test_that_too_many_run_is_known_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked for: to find it out takes longer than all else of a page."""
    await some_running(db)
    tried: list[str] = []
    small = _small(Database.sql)

    def noted(name: str) -> str:
        tried.append(name)
        return small(name)

    monkeypatch.setattr(Database, "sql", staticmethod(noted))
    for after_s, where, is_tried in (
        (0, Filter(queue="q"), True), (1, Filter(type="a", tag='{"n": "1"}'), False),
        (6, Filter(queue="q"), True),
    ):  # fmt: skip
        now = time.monotonic() + after_s
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        tried.clear()
        await listing.page(db, where, None, 50)
        assert ("list_tasks_running" in tried) is is_tried, after_s


async def test_lists_of_a_kind_read_by_the_index(db: Database) -> None:
    """Those of waiting tasks, for unknown parameters too, and those that run by theirs."""
    await some_running(db)
    await query(db, "analyze tasks")
    nothing = ", ".join(["null"] * 13)

    async def look(connection: Any) -> dict[str, str]:
        await connection.execute("set local plan_cache_mode = force_generic_plan")
        plans = {}
        for name in ("of_pair", "of_queue", "of_type", "running"):
            text = statements()[f"list_tasks_{name}"]
            await connection.execute(f"prepare listed_{name} as {text}")
            rows = await connection.fetch(f"explain execute listed_{name}({nothing})")
            await connection.execute(f"deallocate listed_{name}")
            plans[name] = "\n".join(row[0] for row in rows)
        return plans

    plans = await db.snapshot(look, "list", by_index=True)
    for name, plan in plans.items():
        read = set(re.findall(r"(?:using|on) (tasks_\w+)", plan))
        by_kind = "tasks_running" if name == "running" else "tasks_waiting_kind"
        assert read == {"tasks_pkey", by_kind}, plan
