"""Pages of tasks: what fits, all of it, newest first, whichever way it is found."""

import itertools
import json
import random
import re
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from store_rig import NOW, query

from duly.storage import listing
from duly.storage.database import Database
from duly.storage.listing import Filter
from duly.storage.queries import statements
from duly.storage.tasks import TaskRow

MANY = 12_000
"""More than any way reads at once."""

_TASK = """
    insert into tasks (id, type, queue, payload, next_run_at, status, paused, schedule, tags, owner,
                       claimed_at, created_at, updated_at, occurrence, name)
    select id, type, queue, '1', due, status, paused, schedule, tags,
           case when status = 'running' then 'me' end, case when status = 'running' then $1::timestamptz end,
           $1, $1, $1, name
"""
_FINISHED = """
    insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count,
        max_retries, created_at, updated_at, occurrence, paused, schedule, timeout, overrun, on_lost,
        priority, tags, finished_at, name)
    select id, type, queue, '1', status, 0, 1, 0, 3, $1::timestamptz, $1, $1, paused, schedule, 300, 'skip', 'retry',
        5, tags, $1::timestamptz - (get_byte(uuid_send(id), 0) % 3) * interval '1 day', name
"""
_PARAMETERS = (UUID(int=2**128 - 1), UUID(int=0), 51, *[None] * 9, False)
_COLUMNS = """
    from unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::boolean[],
                $8::jsonb[], $9::jsonb[], $10::text[])
        as t (id, type, queue, due, status, paused, schedule, tags, name)
"""


def task(n: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "id": UUID(int=n), "type": "t", "queue": "q", "due": NOW, "status": "pending",
        "paused": False, "schedule": None, "tags": "{}", "name": None,
    }  # fmt: skip
    return plain | changes


async def put(db: Database, tasks: list[dict[str, Any]]) -> None:
    for unfinished in (True, False):
        some = [t for t in tasks if (t["status"] in ("pending", "running")) is unfinished]
        if some:
            columns = [list(column) for column in zip(*(t.values() for t in some), strict=True)]
            await query(db, (_TASK if unfinished else _FINISHED) + _COLUMNS, NOW, *columns)


async def everything(
    db: Database, where: Filter, limit: int = 7
) -> tuple[list[TaskRow], list[int]]:
    """All that the pages hold, and how many each had."""
    found: list[TaskRow] = []
    sizes = []
    after: UUID | None = None
    while True:
        page = await listing.page(db, where, after, limit)
        assert len(page.items) <= limit
        found += page.items
        sizes.append(len(page.items))
        assert page.after is None or after is None or page.after < after
        if page.after is None:
            return found, sizes
        after = page.after


async def numbers(db: Database, where: Filter, limit: int = 7) -> list[int]:
    return [row.id.int for row in (await everything(db, where, limit))[0]]


def fits(one: dict[str, Any], where: Filter) -> bool:
    finished = one["status"] not in ("pending", "running")
    is_paused = one["paused"] and not finished
    due = None if finished else one["due"]
    return (
        where.id in (None, one["id"])
        and where.status in (None, one["status"])
        and where.type in (None, one["type"])
        and where.queue in (None, one["queue"])
        and (where.tag is None or json.loads(where.tag).items() <= json.loads(one["tags"]).items())
        and (where.due_before is None or (due is not None and due < where.due_before))
        and (where.due_after is None or (due is not None and due >= where.due_after))
        and where.periodic in (None, one["schedule"] is not None)
        and where.paused in (None, is_paused)
        and where.name in (None, one["name"])
    )


def drawn(rng: random.Random, n: int) -> dict[str, Any]:
    return task(
        n,
        id=UUID(int=rng.getrandbits(128)),
        type=rng.choice("abc"),
        queue=rng.choice(["p", "q", "r"]),
        due=NOW + timedelta(seconds=rng.randrange(10)),
        status=rng.choice(["pending", "pending", "running", "completed", "failed", "cancelled"]),
        paused=rng.random() < 0.3,
        schedule=rng.choice([None, '{"every": 5}']),
        tags=json.dumps({k: "1" for k in "xyz" if rng.random() < 0.3}),
        name=f"n{n // 2 * 2}" if n % 2 else None,
    )


CHOICES: dict[str, list[Any]] = {
    "status": [None, "pending", "running", "completed", "failed", "cancelled"],
    "type": [None, "b", "other"],
    "queue": [None, "q", "other"],
    "tag": [None, '{"x": "1"}', '{"x": "2"}'],
    "due_before": [None, NOW + timedelta(seconds=6)],
    "due_after": [None, NOW + timedelta(seconds=4)],
    "periodic": [None, True, False],
    "paused": [None, True, False],
    "name": [None, None, None, "n8", "other"],
}


def _small_budgets(name: str) -> str:
    text = statements()[name].replace("offset 999", "offset 8").replace("30000", "20")
    text = re.sub(r"\b2500\b", "3", text)
    return re.sub(r"\b1000\b", "9", text).replace("greatest($3::int, 3", "greatest(2, 3")


@pytest.mark.parametrize("search_s", [None, 0.0, 60.0])
async def test_every_combination_of_filters_finds_what_fits(
    db: Database, search_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a page has to be put together from many small reads, or ends after the first of them."""
    if search_s is not None:
        monkeypatch.setattr(listing, "_SEARCH_S", search_s)
        monkeypatch.setattr(Database, "sql", _small_budgets)
    rng = random.Random(5)
    tasks = [drawn(rng, n) for n in range(300)]
    await query(db, "select duly_make_partitions('finished_tasks', 'finished_at', $1, $2)::text",
                (NOW - timedelta(days=1)).date(), NOW.date())  # fmt: skip
    await put(db, tasks)
    combinations = list(itertools.product(*CHOICES.values()))
    # Every pair of values is in many of these.
    for values in [
        (None,) * len(CHOICES),
        *rng.sample(combinations, 250 if search_s is None else 100),
    ]:
        where = Filter(**dict(zip(CHOICES, values, strict=True)))
        if rng.random() < 0.1:
            where = where._replace(id=rng.choice(tasks)["id"])
        expected = sorted((t["id"] for t in tasks if fits(t, where)), reverse=True)
        found, _ = await everything(db, where, rng.choice([1, 3, 50, 1000]))
        assert [row.id for row in found] == expected, where


async def test_the_whole_range_of_ids(db: Database) -> None:
    ends = [0, 1, (1 << 128) - 2, (1 << 128) - 1]
    await put(db, [task(n) for n in ends])
    assert await numbers(db, Filter(), 1) == ends[::-1]
    for n in ends:
        assert await numbers(db, Filter(id=UUID(int=n)), 1) == [n]
    page = await listing.page(db, Filter(), UUID(int=0), 5)
    assert page == listing.Page([], None)


@pytest.fixture
async def large(db: Database) -> Database:
    """A store with more of everything, newer than what is looked for."""
    for first in range(1, MANY, MANY // 4):
        await query(
            db,
            _TASK + " from (select ('ffffffff-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid as id,"
            " 'b' || n % 2 as type, 'q' || n % 3 as queue, $1::timestamptz + interval '1 day' as due,"
            " 'pending' as status, n % 2 = 0 as paused, jsonb_build_object('every', 5) as schedule,"
            " jsonb_build_object('a', '1') as tags, null as name from generate_series($2::int, $3::int) n) t",
            NOW, first, first + MANY // 4 - 1,
        )  # fmt: skip
        await query(
            db,
            _FINISHED + " from (select ('ffffffff-0000-0000-1000-' || lpad(to_hex(n), 12, '0'))::uuid"
            " as id, 'b' || n % 2 as type, 'q' || n % 3 as queue, case n % 2 when 0 then 'failed'"
            " else 'completed' end as status, false as paused,"
            " jsonb_build_object('every', 5) as schedule, jsonb_build_object('a', '1') as tags, null as name"
            " from generate_series($2::int, $3::int) n) t",
            NOW, first, first + MANY // 4 - 1,
        )  # fmt: skip
    await query(db, "analyze tasks, finished_tasks")
    return db


async def forget(db: Database, one: dict[str, Any]) -> None:
    for table in ("tasks", "finished_tasks"):
        await query(db, f"delete from {table} where id = $1", one["id"])


RARE: dict[str, tuple[dict[str, Any], Filter]] = {
    "a type": (task(1, type="b9"), Filter(type="b9")),
    "a queue": (task(1, queue="q9"), Filter(queue="q9")),
    "a pair": (task(1, type="b1", queue="q9"), Filter(type="b1", queue="q9")),
    "a tag": (task(1, tags='{"a": "2"}'), Filter(tag='{"a": "2"}')),
    "a tag of a type": (task(1, type="b1", tags='{"a": "2"}'), Filter(type="b1", tag='{"a": "2"}')),
    "a time": (task(1), Filter(due_before=NOW + timedelta(hours=1))),
    "a time of a queue": (
        task(1, queue="q1"),
        Filter(queue="q1", due_before=NOW + timedelta(hours=1)),
    ),
    "a running one": (task(1, status="running"), Filter(status="running")),
    "an ended one": (task(1, type="b9", status="completed"), Filter(status="completed", type="b9")),
    "a failed one": (task(1, type="b9", status="failed"), Filter(status="failed", type="b9")),
    "a name": (task(1, name="m"), Filter(name="m")),
    "the name of an ended one": (task(1, status="failed", name="m"), Filter(name="m")),
    "an ended one with a tag": (
        task(1, status="completed", tags='{"a": "2"}'),
        Filter(status="completed", tag='{"a": "2"}'),
    ),
}


async def test_what_is_rare_is_found_at_once(large: Database) -> None:
    for name, (one, where) in RARE.items():
        await put(large, [one])
        page = await listing.page(large, where, None, 50)
        assert [row.id for row in page.items] == [one["id"]], name
        assert page.after is None, name
        await forget(large, one)


FAR: dict[str, tuple[dict[str, Any], Filter]] = {
    "not periodic": (task(1), Filter(periodic=False)),
    "not periodic, finished": (task(1, status="completed"), Filter(periodic=False)),
    "failed": (task(1, status="failed"), Filter(status="failed", periodic=False)),
    "of a frequent tag": (
        task(1, tags='{"a": "1"}'),
        Filter(status="pending", periodic=False, tag='{"a": "1"}'),
    ),
    "of a frequent type": (task(1, type="b1"), Filter(status="pending", periodic=False, type="b1")),
    "paused": (task(1, paused=True), Filter(periodic=False, paused=True)),
    "due when many are": (
        task(1, due=NOW + timedelta(days=1)),
        Filter(periodic=False, due_after=NOW + timedelta(hours=5)),
    ),
}


async def test_a_page_is_not_planned_anew(large: Database) -> None:
    """Of a large store that takes longer than to read the page."""

    async def plans(connection: Any) -> list[int]:
        for _ in range(7):
            await connection.fetch(Database.sql("list_tasks"), *_PARAMETERS)
        return list(
            await connection.fetchrow(
                "select custom_plans, generic_plans from pg_prepared_statements"
                " where statement = $1",
                Database.sql("list_tasks"),
            )
        )

    assert await large.snapshot(plans, "list", by_index=True) == [0, 7]


async def test_what_no_index_leads_to_is_found_by_pages_that_may_be_short(
    large: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (one, where) in FAR.items():
        await put(large, [one])
        for search_s, is_one in ((0, False), (60, True)):
            monkeypatch.setattr(listing, "_SEARCH_S", search_s)
            found, sizes = await everything(large, where)
            assert [row.id for row in found] == [one["id"]], name
            assert (len(sizes) == 1) is is_one, name
        await forget(large, one)


async def test_a_tag_that_was_too_frequent_is_not_looked_up_at_once_again(
    large: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Filter(status="pending", periodic=False, tag='{"a": "1"}')
    monkeypatch.setattr(listing, "_SEARCH_S", 60)
    tried: list[str] = []
    sql = Database.sql

    def noted(name: str) -> str:
        tried.append(name)
        return sql(name)

    monkeypatch.setattr(Database, "sql", staticmethod(noted))
    for after_s, is_tried in ((0, True), (1, False), (61, True)):
        now = time.monotonic() + after_s
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        tried.clear()
        await listing.page(large, where, None, 50)
        assert ("list_tasks_tagged" in tried) is is_tried, after_s


async def test_what_is_due_is_looked_up_in_parts_until_enough_fits(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6,000 that are due, 1,000 are looked at for a page; the next goes on below them."""
    newest = [task(MANY + n, type="t", due=NOW + timedelta(days=n % 2)) for n in range(MANY)]
    await put(db, [*newest, *(task(n, type="b", due=NOW) for n in range(1, 7))])
    where = Filter(status="pending", periodic=False, type="b", due_before=NOW + timedelta(hours=1))
    monkeypatch.setattr(listing, "_ways", lambda *_, **__: iter([(where, ["list_tasks_due"])]))
    monkeypatch.setattr(listing, "_SEARCH_S", 0)
    found, sizes = await everything(db, where)
    assert [row.id.int for row in found] == list(range(6, 0, -1))
    assert len(sizes) == 7
    monkeypatch.setattr(listing, "_SEARCH_S", 60)
    found, sizes = await everything(db, where)
    assert len(found) == 6
    assert len(sizes) == 1


async def test_a_queue_with_more_types_than_can_be_looked_at(db: Database) -> None:
    await put(db, [task(n, type=f"t{n}") for n in range(1_200)])
    where = Filter(queue="q")
    assert await numbers(db, where, 500) == list(range(1_200))[::-1]


async def test_a_task_that_ends_between_the_two_reads_is_listed_once(db: Database) -> None:
    """Both tables are read as of the same instant."""
    await put(db, [task(n) for n in range(3)])
    statement = Database.sql("list_finished")
    moved = False

    class Slow:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        async def fetch(self, sql: str, *args: Any) -> Any:
            nonlocal moved
            if sql == statement:
                await query(db, "delete from tasks where id = $1", UUID(int=1))
                await put(db, [task(1, status="completed")])
                moved = True
            return await self._connection.fetch(sql, *args)

    class SlowDatabase:
        @staticmethod
        async def snapshot(work: Any, name: str, **options: Any) -> Any:
            return await db.snapshot(lambda connection: work(Slow(connection)), name, **options)

    page = await listing.page(SlowDatabase(), Filter(), None, 10)  # type: ignore[arg-type]
    assert moved
    assert [(row.id.int, row.status) for row in page.items] == [
        (2, "pending"), (1, "pending"), (0, "pending"),
    ]  # fmt: skip
