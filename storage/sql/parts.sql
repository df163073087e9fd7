-- What statements of several files have in common.

-- part: asked_for
-- What was submitted, or changed since: it goes along between `tasks` and `finished_tasks`.
type, queue, payload, max_retries, interval, created_at, backoff, timeout, schedule, overrun,
misfire_grace, on_lost, priority, idempotency_key, tags, concurrency_key, concurrency_limit,
fairness_key, region, name, on_success, on_failure, parent, after;

-- part: task t
-- A row of `tasks`, as it is answered.
{columns t its_payload its_next_run_at no_time no_json its_waits};

-- part: finished_task t
{columns t its_payload no_time its_finished_at its_result no_ids};

-- part: columns t payload next_run_at finished_at result waits_for
{t}.id, {t}.type, {t}.queue, {payload t} as payload, {t}.status, {t}.paused,
{next_run_at t} as next_run_at, {t}.occurrence, {t}.slot, {t}.owner, {t}.version, {t}.retry_count,
{t}.max_retries, {t}.backoff, {t}.timeout, {t}.schedule, {t}.overrun, {t}.misfire_grace, {t}.on_lost,
{t}.priority, {t}.idempotency_key, {t}.tags, {t}.concurrency_key, {t}.concurrency_limit,
{t}.fairness_key, {t}.region, {t}.name, {t}.created_at, {t}.updated_at, {t}.started_at, {finished_at t} as finished_at,
{t}.worker, {result t} as result, {t}.error, {t}.on_success, {t}.on_failure, {t}.parent, {t}.after,
{waits_for t} as waits_for;

-- part: its_payload t
{t}.payload;

-- part: its_next_run_at t
{t}.next_run_at;

-- part: its_finished_at t
{t}.finished_at;

-- part: its_result t
{t}.result;

-- part: no_time t
null::timestamptz;

-- part: no_json t
null::jsonb;

-- part: its_waits t
{t}.waits_for;

-- part: no_ids t
null::uuid[];

-- part: so t status tag due_before due_after paused
-- What a change may move of that by which a task was found; null: any.
({status}::text is null or {t}.status = {status}) and ({tag}::jsonb is null or {t}.tags @> {tag})
and ({due_before}::timestamptz is null or {t}.next_run_at < {due_before})
and ({due_after}::timestamptz is null or {t}.next_run_at >= {due_after})
and ({paused}::boolean is null or {t}.paused = {paused});

-- part: all_waits_seen t
-- Nobody has begun to wait for it since this statement's view of `task_waits` was taken: then it is to be tried again.
({t}.awaited is null or {t}.awaited <= (select count(*) from task_waits s where s.parent = {t}.id));

-- part: let_waiting_go
-- What waits for tasks that are `over` is due once all have completed. If one has not, it is due at once, but no
-- claim takes it (`following`), and `expire` ends it with this error. They are locked in one order, and each counts
-- down from its newest state.
untied as (
    delete from task_waits w using over o where w.parent = o.id and o.awaited is not null
    returning w.task, w.parent, o.status, o.at
), hit as materialized (
    select task, array_agg(parent) as parents, max(at) as at,
           (array_agg(jsonb_build_object('type', 'after', 'message', 'a task that it waited for ' ||
                case status when 'failed' then 'failed' else 'was cancelled' end, 'task', parent, 'status', status)
                order by parent) filter (where status <> 'completed'))[1] as error
    from untied group by task
), locked as materialized (
    select t.id from tasks t join hit h on h.task = t.id order by t.id for update of t
), let_go as (
    update tasks t set
        waits_for = case when h.error is null and not t.waits_for <@ h.parents
                         then array(select p from unnest(t.waits_for) as p where p <> all(h.parents)) end,
        next_run_at = case when h.error is not null then h.at
                           when t.waits_for <@ h.parents then greatest(t.occurrence, h.at)
                           else t.next_run_at end,
        occurrence = case when h.error is null and t.waits_for <@ h.parents
                          then greatest(t.occurrence, h.at) else t.occurrence end,
        following = case when h.error is not null then 'epoch'::timestamptz else t.following end,
        error = coalesce(h.error, t.error), paused = t.paused and h.error is null, updated_at = h.at,
        version = t.version + (h.error is not null or t.waits_for <@ h.parents)::int
    from locked l join hit h on h.task = l.id
    where t.id = l.id and t.waits_for is not null and case when t.status = 'pending' then true end
    returning t.id, t.version, t.slot, t.next_run_at, t.priority, t.queue, t.concurrency_key,
        t.fairness_key, t.waits_for, t.paused
);

-- part: follow_up
-- The task that follows each of `outcomes`, which have one.
followed as (
    insert into tasks (id, type, queue, payload, next_run_at, occurrence, max_retries, backoff, timeout,
        misfire_grace, on_lost, priority, tags, concurrency_key, concurrency_limit, fairness_key,
        on_success, on_failure, parent, traceparent, created_at, updated_at)
    select o.follow_id, s.type, s.queue, o.spec -> 'payload', o.at + s.delay * interval '1 second',
        o.at + s.delay * interval '1 second', s.max_retries, s.backoff, s.timeout, s.misfire_grace,
        s.on_lost, s.priority, s.tags, s.concurrency_key, s.concurrency_limit, s.fairness_key,
        s.on_success, s.on_failure,
        jsonb_build_object('id', o.id, 'token', o.token, 'occurrence', o.occurrence, 'status', o.status,
                           'result', o.result, 'error', o.error),
        o.traceparent, o.at, o.at
    from outcomes o cross join lateral jsonb_to_record(o.spec) as s (
        type text, queue text, delay float8, max_retries int, backoff jsonb, timeout float8,
        misfire_grace float8, on_lost text, priority smallint, tags jsonb, concurrency_key text,
        concurrency_limit int, fairness_key text, on_success jsonb, on_failure jsonb)
    returning id, version, slot, next_run_at, priority, queue, concurrency_key, fairness_key
);

-- part: now_waiting
-- What waits now because of what ended.
select f.* from followed f
union all
select l.id, l.version, l.slot, l.next_run_at, l.priority, l.queue, l.concurrency_key, l.fairness_key
from let_go l where l.waits_for is null and not l.paused;

-- part: before
<;

-- part: by
<=;

-- part: where_due before_or_by
-- `look`: of the slots $1 those that may have something due before $2, or by it. Where little is due, it is known which have some of
-- it: at rest that is one way down an index instead of one for each slot.
near as materialized (
    select slot from tasks
    where case when paused then false else status = 'pending' end -- tasks_next, to the letter
      and next_run_at at time zone 'UTC' {before_or_by} $2::timestamptz at time zone 'UTC'
    order by next_run_at at time zone 'UTC' limit 1000
), look as materialized (
    select case when count(*) = 1000 then $1::smallint[]
                else array_agg(distinct slot) filter (where slot = any($1)) end as slots
    from near
);
