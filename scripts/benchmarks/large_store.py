"""Fill a store with millions of tasks, as years of use would leave them, in minutes."""

from typing import Any

_CHUNK = 250_000
_RARE = 400
_PER_S = 125  # ids are those of tasks that were submitted at this rate until now

# A few queues and types have most of the tasks, and one of each has hardly any: of the rare queue there are as many
# whatever the size. Due over the next 24
# hours, not before 10 minutes from now, a third of them at the full hour.
_COMMON = """
    with n as (
        select n, random() as t, random() as q, case when random() < 0.33 then floor(random() * 24) / 24
               else random() end as due, now() - ($3::int - n) * interval '1 s' / $4::int as at
        from generate_series($1::int, $2::int) n
    ), one as (
        select n, at, (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
               || lpad(to_hex(n % 4096), 3, '0') || '8' || substr(md5(n::text || $5::text), 1, 15))::uuid as id,
               case when n % 100003 = 0 then 'rare.type' else 'type.' || floor(t * t * 20) end as type,
               case when n % ($3::int / $6::int + 1) = 0 then 'rare' else 'queue' || floor(q * q * 8) end as queue,
               jsonb_build_object('n', n, 'text', md5(n::text)) as payload,
               case when n % 20 = 0 then jsonb_build_object('team', 't' || n / 20 % 50,
                   'customer', 'c' || n / 20 % 100000) else '{}' end as tags,
               now() + interval '10 min' + due * interval '24 h' as due
        from n
    )
"""
_TASKS = (
    _COMMON
    + """
    insert into tasks (id, type, queue, payload, next_run_at, occurrence, created_at, updated_at, tags,
                       schedule, interval, paused)
    select id, type, queue, payload, due, due, at, at, tags,
           case when n % 200 = 7 then '{"every": 86400}'::jsonb end,
           case when n % 200 = 7 then interval '1 day' end, n % 5000 = 11
    from one
"""
)
_FINISHED = (
    _COMMON
    + """
    insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count,
        max_retries, created_at, updated_at, occurrence, paused, timeout, overrun, on_lost, priority,
        tags, finished_at, result)
    select id, type, queue, payload, case when n % 1000 = 3 then 'failed' when n % 100000 = 5
               then 'cancelled' else 'completed' end,
           get_byte(sha256(uuid_send(id)), 0), 1, 0, 3, at, at, at, false, 300, 'skip', 'retry', 5, tags,
           at + interval '1 s', '1'
    from one
"""
)


async def fill(database: Any, tasks: int, finished: int) -> None:
    """Add so many waiting and so many finished tasks; leaves the tables vacuumed and analysed."""
    await database.execute("set synchronous_commit = off")
    days = finished // _PER_S // 86_400 + 1
    partitions = "select duly_make_partitions('finished_tasks', 'finished_at', current_date - $1::int, current_date)"
    await database.fetch(partitions, days)
    await _insert(database, _FINISHED, finished, "finished")
    indexes = await database.fetch(
        "select indexname as name, indexdef as text from pg_indexes"
        " where tablename = 'tasks' and indexname <> 'tasks_pkey'"
    )
    for index in indexes:  # made at the end: much quicker
        await database.execute(f"drop index {index['name']}")
    await _insert(database, _TASKS, tasks, "tasks")
    await database.execute("set maintenance_work_mem = '512MB'")
    for index in indexes:
        await database.execute(index["text"])
    await database.execute("vacuum analyze tasks")
    await database.execute("vacuum analyze finished_tasks")
    await database.execute("reset synchronous_commit")


async def _insert(database: Any, text: str, count: int, kind: str) -> None:
    for first in range(1, count + 1, _CHUNK):
        last = min(count, first + _CHUNK - 1)
        await database.execute(text, first, last, count, _PER_S, kind, _RARE)
