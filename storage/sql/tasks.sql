-- What clients do to tasks. $now is the cluster's clock everywhere.

-- name: submit
-- Insert tasks; a known idempotency key answers the first task's id instead (the conflict path
-- writes too, so that its commit waits for replication as an insert's would). Not inserted is what has the
-- id or the name of another task; of a name, also if the other one is only just being inserted.
with asked as materialized (
    select * from unnest(
        $1::uuid[], $2::text[], $3::text[], $4::jsonb[], $5::timestamptz[], $6::int[], $7::jsonb[],
        $8::float8[], $9::float8[], $10::text[], $11::smallint[], $12::text[], $13::bytea[],
        $14::jsonb[], $15::boolean[], $16::timestamptz[], $17::timestamptz[], $18::jsonb[],
        $19::interval[], $20::text[], $21::timestamptz[], $22::text[], $23::text[], $24::int[],
        $25::text[], $26::text[], $27::text[], $28::text[], $29::jsonb[], $30::jsonb[], $31::jsonb[]
    ) as a (id, type, queue, payload, due, max_retries, backoff,
            timeout, misfire_grace, on_lost, priority, key, fingerprint,
            tags, own_id, created_at, occurrence, schedule,
            interval, overrun, following, zone_data, concurrency_key, concurrency_limit,
            fairness_key, traceparent, region, name, on_success, on_failure, after)
), keyed as (
    insert into idempotency_keys as k (key, task_id, fingerprint, expires_at)
    select key, id, fingerprint, $33::timestamptz from asked where key is not null order by key
    on conflict (key) do update set
        task_id = case when k.expires_at <= $32 then excluded.task_id else k.task_id end,
        fingerprint = case when k.expires_at <= $32 then excluded.fingerprint else k.fingerprint end,
        expires_at = case when k.expires_at <= $32 then excluded.expires_at else k.expires_at end
    returning key, task_id, fingerprint, expires_at
), judged as materialized (
    -- Other than what was asked for: the key is known. (An equal id alone may be a repeat.)
    select a.*, k.task_id as first_id, k.fingerprint as first_fingerprint,
           coalesce(k.task_id <> a.id or k.expires_at <> $33, false) as known
    from asked a left join keyed k on k.key = a.key
), inserted as (
    insert into tasks (id, type, queue, payload, next_run_at, occurrence, max_retries, backoff,
                       timeout, misfire_grace, on_lost, priority, idempotency_key, tags,
                       concurrency_key, concurrency_limit, fairness_key,
                       created_at, updated_at, schedule, interval, overrun, following, zone_data,
                       silent_at, traceparent, region, name, on_success, on_failure, after, waits_for)
    select a.id, a.type, a.queue, a.payload, a.due, a.occurrence, a.max_retries, a.backoff,
           a.timeout, a.misfire_grace, a.on_lost, a.priority, a.key, a.tags,
           a.concurrency_key, a.concurrency_limit, a.fairness_key,
           a.created_at, a.created_at, a.schedule, a.interval, a.overrun, a.following, a.zone_data,
           case when a.schedule is not null then duly_silent_at(a.schedule, a.created_at) end,
           a.traceparent, a.region, a.name, a.on_success, a.on_failure,
           case when a.after is not null
               then array(select e::uuid from jsonb_array_elements_text(a.after) as e) end,
           case when a.after is not null
               then array(select distinct e::uuid from jsonb_array_elements_text(a.after) as e) end
    from judged a
    where not a.known
      and not (a.own_id and exists (select from finished_tasks f where f.id = a.id))
    -- As every other submission: two that share names or ids wait, and do not deadlock.
    order by a.name nulls first, a.id
    on conflict do nothing
    returning id, slot, created_at
)
select a.id, i.slot, i.created_at, s.owner, a.known, a.first_id, a.first_fingerprint
from judged a
left join inserted i on i.id = a.id
left join slots s on s.slot = i.slot;

-- name: submit_plain
-- As `submit`, of tasks without a key, an id of the client's own, a schedule or any other of the rarer
-- fields: nothing has to be looked up. A column of equal values comes as one value, one of nulls as none.
-- Owners of slots are looked up for tasks that are due before $13 (null: for all), to be woken.
insert into tasks as t (id, type, queue, payload, next_run_at, occurrence, max_retries, backoff,
                        timeout, priority, tags, traceparent, created_at, updated_at)
select a.id, coalesce(a.type, ($2::text[])[1]), coalesce(a.queue, ($3::text[])[1]),
       coalesce(a.payload, ($4::jsonb[])[1]), coalesce(a.due, ($5::timestamptz[])[1]),
       coalesce(a.due, ($5::timestamptz[])[1]), coalesce(a.max_retries, ($6::int[])[1]), a.backoff,
       coalesce(a.timeout, ($8::float8[])[1]), coalesce(a.priority, ($9::smallint[])[1]),
       coalesce(a.tags, ($10::jsonb[])[1]), a.traceparent,
       coalesce(a.created_at, ($12::timestamptz[])[1]),
       coalesce(a.created_at, ($12::timestamptz[])[1])
from unnest(
    $1::uuid[], $2::text[], $3::text[], $4::jsonb[], $5::timestamptz[], $6::int[], $7::jsonb[],
    $8::float8[], $9::smallint[], $10::jsonb[], $11::text[], $12::timestamptz[]
) as a (id, type, queue, payload, due, max_retries, backoff,
        timeout, priority, tags, traceparent, created_at)
returning t.id, t.slot,
          case when $13::timestamptz is null or t.next_run_at < $13
               then (select s.owner from slots s where s.slot = t.slot) end as owner;

-- name: stored
-- After a submission in doubt: what it has stored of these ids. When each was created is its mark.
with asked as (
    select * from unnest($1::uuid[], $2::timestamptz[]) as a (id, created_at)
)
select t.id, t.slot, t.created_at, s.owner
from asked a join tasks t on t.id = a.id and t.created_at = a.created_at
left join slots s on s.slot = t.slot
union all
select f.id, f.slot, f.created_at, null
from asked a join finished_tasks f on f.id = a.id and f.created_at = a.created_at;

-- name: note_waits
-- Within the transaction of a submission: note on these unfinished tasks how many more wait for them. Locked in
-- one order, as by whatever lets go of those that wait.
with locked as materialized (
    select t.id from tasks t where t.id = any($1::uuid[]) order by t.id for update
)
update tasks t set awaited = coalesce(t.awaited, 0) + c.number
from locked l join unnest($1::uuid[], $2::int[]) as c (id, number) on c.id = l.id
where t.id = l.id and t.schedule is null
returning t.id;

-- name: ends_of
-- What became of these tasks; of one that does not end by itself no status.
select id, status from finished_tasks where id = any($1::uuid[])
union all
select id, null from tasks where id = any($1::uuid[]) and schedule is not null;

-- name: add_waits
-- In the same transaction, after `note_waits`: of each task one that it waits for.
insert into task_waits (parent, task) select * from unnest($1::uuid[], $2::uuid[]);

-- name: ended_before
-- In the same transaction: of what these tasks wait for, $2 has completed already.
update tasks t set
    waits_for = case when not t.waits_for <@ $2::uuid[]
                     then array(select p from unnest(t.waits_for) as p where p <> all($2)) end,
    next_run_at = case when t.waits_for <@ $2 then t.occurrence else t.next_run_at end
where t.id = any($1::uuid[]) and t.waits_for && $2
returning t.id, t.slot, t.next_run_at, t.waits_for;

-- name: waiting
-- Those that wait for task $1, newest first, older than the id $2.
select {task t} from task_waits w join tasks t on t.id = w.task
where w.parent = $1 and ($2::uuid is null or w.task < $2)
order by w.task desc limit $3;

-- name: withdraw_finished
-- Within the transaction of a submission: an id of the client's own whose task ended between the
-- submission's snapshot and its insert is in both tables now. A later snapshot sees it.
delete from tasks t using finished_tasks f
where t.id = any($1::uuid[]) and f.id = t.id
returning t.id;

-- name: queues
select id, queue from tasks where id = any($1::uuid[])
union all
select id, queue from finished_tasks where id = any($1::uuid[]);

-- name: get
select * from (
    select {task t} from tasks t where id = any($1::uuid[])
    union all
    select {finished_task t} from finished_tasks t where id = any($1::uuid[])
) t;

-- name: named
-- The unfinished tasks that have these names.
select {task t} from tasks t where name = any($1::text[]);

-- name: cancel
-- Pending or running becomes cancelled; whatever its worker still reports is stale. A periodic task
-- only as it was ($3 to $6) when it was decided which of its occurrences ($7, $8) came due and are
-- skipped with it. A row that ends no attempt has no `finished_at`. Only while it is so ($9 to $13). Not one whose
-- attempt a user's transaction has completed.
with gone as (
    delete from tasks
    where id = $1 and {so tasks $9 $10 $11 $12 $13} and completion is null
      and (schedule is null
           or (version = $3::bigint and status = $4::text and schedule is not distinct from $5::jsonb
               and done_until is not distinct from $6::timestamptz))
      and {all_waits_seen tasks}
    returning *
), moved as (
    insert into finished_tasks (id, status, slot, owner, version, retry_count, updated_at, occurrence,
        paused, {asked_for}, started_at, finished_at, worker, error)
    select id, 'cancelled', slot, owner, version + 1, retry_count, $2, occurrence, paused,
        {asked_for}, started_at, $2, worker, error
    from gone
    returning *
), attempt as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, worker,
                      started_at, finished_at, recorded_at)
    select id, type, queue, version + case when status = 'running' then 0 else 1 end, occurrence,
           retry_count + 1, 'cancelled', 'cancelled', worker, started_at,
           case when status = 'running' then $2 end, $2
    from gone
), skipped as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at,
                      error)
    select m.id, m.type, m.queue, m.version, s.occurrence, 1, 'skipped', 'skipped',
           $2 + s.place * interval '1 microsecond', s.error
    from moved m
    cross join unnest($7::timestamptz[], $8::jsonb[])
        with ordinality as s (occurrence, error, place)
), over as (
    select id, awaited, 'cancelled' as status, $2 as at from gone
), {let_waiting_go}
select {finished_task m},
       g.version as token
from moved m cross join gone g;

-- name: is_so
-- Whether a task is unfinished and so.
select t.id from tasks t where t.id = $1 and {so t $2 $3 $4 $5 $6};

-- name: patch
-- Change a pending task; a null flag leaves its field alone. Answers the task as it is after it, or,
-- unchanged, as it was when that was decided. A new time is a new occurrence, except of a task that
-- has begun, where what it did under the old one must not be done twice, and of a periodic one.
-- $17 names the version at which it was decided where the schedule leads from now on (with the status,
-- and since a running task keeps its version, with what else a change may move); then
-- $19 is the occurrence that waits, and what was skipped is recorded. Of a periodic task that runs,
-- what concerns only its later occurrences ($16) may be changed; its version, the token, stays.
with found as materialized (
    select * from tasks where id = $1 for update
), changed as (
    update tasks t set
        -- What waits for other tasks keeps to that, unless $34, and is due at this time or later.
        next_run_at = case when t.waits_for is null or $34::boolean then coalesce($4, $20, t.next_run_at)
                           else t.next_run_at end,
        waits_for = case when not $34 then t.waits_for end,
        occurrence = case when $19::timestamptz is not null then $19
                          when t.waits_for is not null then coalesce($4, t.occurrence)
                          when t.schedule is null and t.retry_count = 0
                               and t.occurrence = t.next_run_at
                               and not exists (select from runs r where r.task_id = t.id)
                          then coalesce($4, t.occurrence) else t.occurrence end,
        payload = coalesce($5, t.payload), priority = coalesce($6, t.priority),
        max_retries = coalesce($7, t.max_retries), backoff = coalesce($8, t.backoff),
        timeout = coalesce($9, t.timeout), tags = coalesce($10, t.tags),
        misfire_grace = case when $11 then $12 else t.misfire_grace end,
        schedule = coalesce($13, t.schedule),
        interval = case when $13 is null then t.interval else $14::interval end,
        overrun = coalesce($15, t.overrun),
        following = case when t.schedule is null then t.following
                         when $4 is not null and t.skip_until is null then null
                         when $19 is not null then $21 else t.following end,
        done_until = coalesce($22, t.done_until), runs_done = t.runs_done + $28,
        skip_until = case when $19 is null then t.skip_until end,
        skip_reason = case when $19 is null then t.skip_reason end,
        zone_data = case when $19 is null then t.zone_data else $23::text end,
        concurrency_key = case when $29::boolean then $30 else t.concurrency_key end,
        concurrency_limit = case when $29 and $30::text is null then null
                                 when $29 then coalesce($31::int, t.concurrency_limit, 1)
                                 else t.concurrency_limit end,
        fairness_key = case when $32::boolean then $33::text else t.fairness_key end,
        silent_at = case when $13 is null then t.silent_at else duly_silent_at($13, $2) end,
        version = t.version + case when t.status = 'pending' then 1 else 0 end, updated_at = $2
    from found f
    where t.id = f.id and ($3::bigint is null or f.version = $3)
      and (f.status = 'pending' or (f.status = 'running' and f.schedule is not null and $16::boolean))
      and ($17::bigint is null
           or (f.version = $17 and f.status = $18::text
               and f.schedule is not distinct from $26::jsonb
               and f.done_until is not distinct from $27::timestamptz))
    returning t.*
), skipped as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at,
                      error)
    select c.id, c.type, c.queue, c.version, s.occurrence, 1, 'skipped', 'skipped',
           $2 + s.place * interval '1 microsecond', s.error
    from changed c
    cross join unnest($24::timestamptz[], $25::jsonb[])
        with ordinality as s (occurrence, error, place)
), answer as (
    select changed.*, true as was_changed from changed
    union all
    select found.*, false from found where not exists (select from changed)
)
select {task a},
       a.was_changed, s.owner as slot_owner
from answer a join slots s on s.slot = a.slot;

-- name: retry
-- A failed task is due now, with all of its retries. Its token goes on growing, and its occurrence
-- stays: what an earlier attempt did under it must not be done twice. So it is open again: the run
-- that was its verdict is an attempt like the others now.
with gone as (
    delete from finished_tasks where id = $1 and status = 'failed' returning *
), opened as (
    update runs r set verdict = null from gone g
    where r.task_id = g.id and r.occurrence = g.occurrence and r.verdict is not null
), back as (
    insert into tasks (id, next_run_at, version, updated_at, occurrence, {asked_for}, error)
    select id, $2, version + 1, $2, occurrence, {asked_for}, error
    from gone
    returning *
)
select {task b},
       true as was_changed, s.owner as slot_owner
from back b join slots s on s.slot = b.slot;

-- name: runs
-- Newest first; ($2, $3) is the place of the last run of the page before. What was cancelled while it
-- waited was no run; the ledger has it.
select task_id, token, occurrence, attempt, outcome, worker, started_at, finished_at, recorded_at,
       error, result, follow_up
from runs
where task_id = $1 and ($2::bigint is null or (token, recorded_at) < ($2, $3::timestamptz))
  and (outcome <> 'cancelled' or finished_at is not null)
order by token desc, recorded_at desc limit $4;
