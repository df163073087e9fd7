-- The fenced writes: every statement here compares a token, and no other may end or begin an attempt.
-- `case when … then … end` around a status keeps the planner on the primary key: seen as a plain
-- condition, it may choose a scan of a partial index instead.

-- name: claim
-- pending -> running, if these versions still stand and this node still owns the slots.
-- FOR SHARE on the slot rows makes a take-over wait for this commit, and this wait for a take-over;
-- without the lock a stale claim can commit after it. All or nothing per batch of slots.
-- The token starts above the base of the timeline on which this very statement writes: after a
-- promotion that lost claims, none of their tokens comes again. (pg_control_checkpoint() would tell
-- of the promotion only from the next checkpoint on.)
with writing as materialized (
    select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint as timeline
), own as materialized (
    select s.slot from slots s
    join unnest($4::smallint[], $5::bigint[]) as e (slot, epoch)
      on s.slot = e.slot and s.epoch = e.epoch
    order by s.slot for share of s
), ok as (
    select count(*) = cardinality($4) as owned from own
), claimed as (
    update tasks t set
        status = 'running', version = greatest(t.version, (select (timeline - 1) << 40 from writing)) + 1,
        owner = $3, claimed_at = $6, updated_at = $6, started_at = null, start_id = null, worker = null
    from unnest($1::uuid[], $2::bigint[]) as c (id, version)
    where t.id = c.id and t.version = c.version
      and case when t.status = 'pending' then not t.paused end
      and (t.misfire_grace is null or t.retry_count > 0
           or extract(epoch from $6 - t.next_run_at) <= t.misfire_grace)
      and (select owned from ok)
    returning t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost,
        -- A large answer that a paused node does not read would hold the slots' locks.
        -- What is stored may be compressed: only the text's own length tells.
        case when pg_column_size(t.payload) <= $7::int and octet_length(t.payload::text) <= $7
            then t.payload end as payload
)
select ok.owned, claimed.* from ok left join claimed on true;

-- name: payloads
select id, payload from tasks where id = any($1::uuid[]);

-- name: claimed
-- After a claim whose commit is in doubt: what of it is ours. Also what to publish again.
select t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost, t.payload
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version > c.version
where t.owner = $3 and case when t.status = 'running' then true end;

-- name: running
-- What the stream should hold: running under this very token.
select t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost, t.payload
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version = c.version
where case when t.status = 'running' then true end;

-- name: expire
-- A one-off that was not claimed because it is later than its misfire grace ends failed.
with gone as (
    delete from tasks t using unnest($1::uuid[], $2::bigint[]) as c (id, version)
    where t.id = c.id and t.version = c.version
      and case when t.status = 'pending' then not t.paused end
      and t.retry_count = 0 and t.schedule is null
      and extract(epoch from $3::timestamptz - t.next_run_at) > t.misfire_grace
    returning t.*
), moved as (
    insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count,
        max_retries, interval, created_at, updated_at, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, finished_at, error)
    select id, type, queue, payload, 'failed', slot, version + 1, retry_count,
        max_retries, interval, created_at, $3, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, $3, '"expired"'
    from gone
), attempt as (
    insert into runs (task_id, token, occurrence, attempt, outcome, recorded_at, error)
    select id, version + 1, occurrence, retry_count + 1, 'skipped', $3, '"expired"' from gone
)
select id from gone;

-- name: start
-- Grant a token its one start; the same start_id may ask again.
update tasks set start_id = $3, worker = $4, started_at = coalesce(started_at, $5), updated_at = $5
where id = $1 and version = $2 and case when status = 'running' then true end
  and (start_id is null or start_id = $3)
returning id;

-- name: complete
-- Reports of success on one-off tasks: out of the hot table, with their run, in one statement.
with reported as (
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::timestamptz[],
                         $6::jsonb[]) as r (id, token, by, began, ended, result)
), gone as (
    delete from tasks t using reported r
    where t.id = r.id and t.version = r.token
      and case when t.status = 'running' then t.schedule is null end
    returning t.*, r.by, r.began, r.ended, r.result
), moved as (
    insert into finished_tasks (id, type, queue, payload, status, slot, owner, version, retry_count,
        max_retries, interval, created_at, updated_at, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, started_at, finished_at,
        worker, result)
    select id, type, queue, payload, 'completed', slot, owner, version, retry_count,
        max_retries, interval, created_at, $7, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, began, $7, by, result
    from gone
), attempt as (
    insert into runs (task_id, token, occurrence, attempt, outcome, worker, started_at, finished_at,
                      recorded_at, result)
    select id, version, occurrence, retry_count + 1, 'completed', by, began, ended, $7, result
    from gone
)
select id, version from gone;

-- name: attempts
-- What deciding between retry and end needs to know.
select t.id, t.version, t.retry_count, t.max_retries, t.backoff, t.on_lost
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version = c.version
where case when t.status = 'running' then true end;

-- name: settle
-- Every other end of an attempt. next_run_at says what follows: an instant = pending again then,
-- null = failed for good. outcome null = no run (a snooze). A retry takes one of its retries.
with settled as (
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::boolean[],
                         $6::text[], $7::timestamptz[], $8::timestamptz[], $9::jsonb[])
        as r (id, token, outcome, again_at, counts, by, began, ended, error)
), again as (
    update tasks t set
        status = 'pending', next_run_at = r.again_at,
        retry_count = t.retry_count + r.counts::int,
        owner = null, claimed_at = null, started_at = null, start_id = null, worker = null,
        updated_at = $10, error = coalesce(r.error, t.error)
    from settled r
    where t.id = r.id and t.version = r.token and r.again_at is not null
      and case when t.status = 'running' then true end
    returning t.id, t.version, t.slot, t.next_run_at, t.priority, t.queue, t.occurrence,
              t.retry_count + 1 - r.counts::int as attempt
), gone as (
    delete from tasks t using settled r
    where t.id = r.id and t.version = r.token and r.again_at is null
      and case when t.status = 'running' then true end
    returning t.*, r.by, r.began, r.error as last_error
), moved as (
    insert into finished_tasks (id, type, queue, payload, status, slot, owner, version, retry_count,
        max_retries, interval, created_at, updated_at, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, started_at, finished_at,
        worker, error)
    select id, type, queue, payload, 'failed', slot, owner, version, retry_count,
        max_retries, interval, created_at, $10, occurrence, paused, backoff, timeout, schedule,
        overrun, misfire_grace, on_lost, priority, idempotency_key, tags, began, $10, by, last_error
    from gone
), ended as (
    select id, version, occurrence, attempt from again
    union all
    select id, version, occurrence, retry_count + 1 from gone
), attempt as (
    insert into runs (task_id, token, occurrence, attempt, outcome, worker, started_at, finished_at,
                      recorded_at, error)
    select e.id, e.version, e.occurrence, e.attempt, r.outcome, r.by, r.began, r.ended, $10, r.error
    from ended e join settled r on r.id = e.id and r.token = e.version
    where r.outcome is not null
)
select e.id, a.version, a.slot, a.next_run_at, a.priority, a.queue, s.owner as slot_owner
from ended e left join again a on a.id = e.id left join slots s on s.slot = a.slot;
