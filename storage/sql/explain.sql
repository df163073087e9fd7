-- Why a task has not run, as far as the store knows.

-- name: explain
select * from (
    select t.status, t.queue, t.paused, t.paused_by, t.paused_at, t.next_run_at, t.slot, t.owner,
           t.version, t.retry_count, t.max_retries, t.begun, t.priority, t.claimed_at, t.started_at,
           t.worker, null::timestamptz as finished_at,
           s.owner as slot_owner, s.free_since,
           q.paused as queue_paused, q.paused_by as queue_paused_by, q.paused_at as queue_paused_at,
           q.rate, q.burst, q.max_in_flight, t.concurrency_key, t.concurrency_limit, t.waits_for,
           case when t.error ->> 'type' = 'given_back' then left(t.error ->> 'message', 1000) end as given_back
    from tasks t join slots s on s.slot = t.slot left join queues q on q.queue = t.queue
    where t.id = $1
    union all
    select status, queue, false, null, null, null, slot, owner, version, retry_count, max_retries,
           true, priority, null, started_at, worker, finished_at, null, null,
           null, null, null, null, null, null, concurrency_key, concurrency_limit, null, null
    from finished_tasks where id = $1
) t limit 1;

-- name: ahead
-- How many due tasks of the queue $1 go before one of priority $2 that was due at $3. Of each slot
-- the first $5 that are due by $4 are looked at, of all queues; `whole`: there are no more.
select coalesce(sum(one.ahead), 0)::bigint as ahead, bool_and(one.seen < $5) as whole
from slots s cross join lateral (
    select count(*) as seen, count(*) filter (
        where d.queue = $1 and (d.priority > $2 or (d.priority = $2 and d.next_run_at < $3))
    ) as ahead
    from (
        select queue, priority, next_run_at from tasks
        where slot = s.slot and status = 'pending' and not paused and next_run_at <= $4
        order by next_run_at, id limit $5
    ) d
) one;
