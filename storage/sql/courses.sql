-- Where periodic tasks stand in their schedules, and their moves along them while they wait.

-- name: courses
select id, version, status, paused, created_at, schedule, overrun, misfire_grace, occurrence,
       next_run_at, following, done_until, runs_done, begun, skip_until, skip_reason, zone_data,
       completion is not null as completed
from tasks where id = any($1::uuid[]);

-- name: advance
-- Pending tasks go to another occurrence or time, if these versions still stand; what is skipped on
-- the way is recorded. next_run_at null: the schedule is over, with the result of the last run.
-- `resume`: and they are not paused any more.
with asked as (
    select * from unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[],
                         $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::text[],
                         $9::text[])
        as r (id, version, next, next_run_at, following, done_until, skip_until, skip_reason, zone_data)
), again as (
    update tasks t set
        occurrence = r.next, next_run_at = r.next_run_at, following = r.following,
        done_until = r.done_until, skip_until = r.skip_until, skip_reason = r.skip_reason,
        zone_data = r.zone_data, paused = t.paused and not $13::boolean,
        paused_by = case when not $13 then t.paused_by end,
        paused_at = case when not $13 then t.paused_at end,
        failed_in_row = case when $13 then 0 else t.failed_in_row end,
        version = t.version + 1, updated_at = $14
    from asked r
    where t.id = r.id and t.version = r.version and r.next_run_at is not null
      and case when t.status = 'pending' then true end
    returning t.id, t.version, t.slot, t.next_run_at, t.priority, t.queue, t.paused, t.concurrency_key,
        t.fairness_key, t.type
), gone as (
    delete from tasks t using asked r
    where t.id = r.id and t.version = r.version and r.next_run_at is null
      and case when t.status = 'pending' then true end
    returning t.*
), moved as (
    insert into finished_tasks (id, status, slot, version, retry_count, updated_at, occurrence,
        paused, {asked_for}, started_at, finished_at, worker, result, error)
    select g.id, 'completed', slot, version + 1, retry_count, $14, g.occurrence, false,
        {asked_for}, l.started_at, $14, l.worker, l.result, g.error
    from gone g left join lateral (
        select r.started_at, r.worker, r.result from runs r
        where r.task_id = g.id and r.outcome <> 'skipped'
        order by r.token desc, r.recorded_at desc limit 1
    ) l on true
), changed as (
    select id, version, type, queue from again union all select id, version + 1, type, queue from gone
), skipped as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at,
                      error)
    select c.id, c.type, c.queue, c.version, s.occurrence, 1, 'skipped', 'skipped',
           $14 + s.place * interval '1 microsecond', s.error
    from changed c
    join unnest($10::uuid[], $11::timestamptz[], $12::jsonb[])
        with ordinality as s (id, occurrence, error, place) on s.id = c.id
)
select c.id, a.version, a.slot, a.next_run_at, a.priority, a.queue, a.paused, a.concurrency_key,
       a.fairness_key, s.owner as slot_owner
from changed c left join again a on a.id = c.id left join slots s on s.slot = a.slot;

-- name: pause
-- No claims any more, or, of a task that runs, claims again. A running attempt goes on: its version
-- stays.
update tasks t set
    paused = $3, paused_by = case when $3 then $4::text end, paused_at = case when $3 then $2::timestamptz end,
    failed_in_row = case when $3 then t.failed_in_row else 0 end,
    updated_at = $2, version = t.version + case when t.status = 'pending' then 1 else 0 end
where t.id = $1 and t.paused <> $3
  and case when t.status = 'running' then true when t.status = 'pending' then $3 end
returning t.id;

-- name: zone_outdated
-- Waiting tasks in the slots of node $1 whose time was computed with older zone data than $2.
select t.id from tasks t join slots s on s.slot = t.slot
where t.zone_data < $2 and t.status = 'pending' and not t.begun and s.owner = $1
order by t.zone_data, t.id limit $3;
