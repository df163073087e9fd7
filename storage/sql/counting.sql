-- How many tasks there are, from indexes alone, of some slots at a time.

-- name: count_due
-- Due at $2 and not claimed.
with {where_due by}
select coalesce(sum(t.tasks), 0)::bigint as tasks
from unnest((select slots from look)) as s (slot)
cross join lateral (
    select count(*) as tasks from tasks
    where slot = s.slot and status = 'pending' and not paused and next_run_at <= $2
) t;

-- name: count_tasks
-- By queue; `due`: of those that are pending and not paused, due at $2.
select t.queue, sum(t.pending)::bigint as pending, sum(t.due)::bigint as due,
       sum(t.paused)::bigint as paused, sum(t.running)::bigint as running
from unnest($1::smallint[]) as s (slot)
cross join lateral (
    select queue, count(*) as pending, count(*) filter (where next_run_at <= $2) as due,
           0::bigint as paused, 0::bigint as running
    from tasks where slot = s.slot and status = 'pending' and not paused group by queue
    union all
    select queue, count(*), 0, count(*), 0
    from tasks where slot = s.slot and status = 'pending' and paused group by queue
    union all
    select queue, 0, 0, 0, count(*)
    from tasks where slot = s.slot and status = 'running' group by queue
) t
group by t.queue;

-- name: count_finished
-- Of about $1 percent of the pages.
select status, count(*) as tasks from finished_tasks tablesample system ($1) group by status;
