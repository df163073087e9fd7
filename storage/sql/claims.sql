-- The fenced writes: every statement here compares a token, and no other may end or begin an attempt.
-- `case when … then … end` around a status keeps the planner on the primary key: seen as a plain
-- condition, it may choose a scan of a partial index instead.

-- part: claiming turn if_any these
-- pending -> running, if these versions still stand and this node still owns the slots.
-- FOR SHARE on the slot rows makes a take-over wait for this commit, and this wait for a take-over;
-- without the lock a stale claim can commit after it. All or nothing per batch of slots.
-- The token starts above the base of the timeline on which this very statement writes: after a
-- promotion that lost claims, none of their tokens comes again. (pg_control_checkpoint() would tell
-- of the promotion only from the next checkpoint on.)
with writing as materialized (
    select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint as timeline
){turn}, own as materialized (
    select s.slot from slots s
    join unnest($4::smallint[], $5::bigint[]) as e (slot, epoch)
      on s.slot = e.slot and s.epoch = e.epoch{if_any}
    order by s.slot for share of s
), ok as (
    select count(*) = cardinality($4) as owned from own
), claimed as (
    update tasks t set
        status = 'running', version = greatest(t.version, (select (timeline - 1) << 40 from writing)) + 1,
        owner = $3, claimed_at = $6, updated_at = $6, started_at = null, start_id = null, worker = null
    from {these} as c (id, version)
    where t.id = c.id and t.version = c.version
      and case when t.status = 'pending' then not t.paused end
      and (t.misfire_grace is null or t.begun
           or extract(epoch from $6 - t.next_run_at) <= t.misfire_grace)
      and (t.following is null or t.following > $6)
      and (select owned from ok)
    returning t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost,
        -- A large answer that a paused node does not read would hold the slots' locks.
        -- What is stored may be compressed: only the text's own length tells.
        -- That of a task that follows another comes apart, with what the other has to say.
        case when t.parent is null and pg_column_size(t.payload) <= $7::int
                  and octet_length(t.payload::text) <= $7
            then t.payload end as payload,
        t.traceparent
);

-- part: nothing
;

-- part: given
unnest($1::uuid[], $2::bigint[]);

-- name: claim
{claiming nothing nothing given}
select ok.owned, claimed.* from ok left join claimed on true;

-- part: turn
, turn as materialized (
    select * from duly_room($1, $2, $8, $9)
);

-- part: if_any_has_room
 and exists (select from turn where held is null);

-- part: with_room
(select id, version from turn where held is null);

-- name: claim_in_turn
-- As `claim`, of tasks with these concurrency keys ($8; null: none), and of the queue $9 if it has
-- max_in_flight, as long as there is room. `held`: the task `held_id` is not claimed, because its key is
-- `full`, or `busy` (another claim has its lock), or the queue is. The room is counted
-- with a later view of the tasks than this statement's own: what changed in between is refused by the row
-- itself, as in `claim`. With nothing to claim no slot is locked, and its epoch is not looked at.
{claiming turn if_any_has_room with_room}
select ok.owned, claimed.*, null::uuid as held_id, null as held from ok left join claimed on true
where exists (select from turn where held is null)
union all
select true, c.*, turn.id, turn.held from turn left join claimed c on false where turn.held is not null;

-- name: in_flight
-- As the claim in turn counts them.
select count(*) as count from tasks where status = 'running' and queue || '' = $1;

-- name: key_holders
-- The running tasks that hold the key of task $1.
select r.id from tasks t join tasks r on r.concurrency_key = t.concurrency_key
where t.id = $1 and r.status = 'running'
order by r.claimed_at, r.id limit $2;

-- name: payloads
select id, payload, parent from tasks where id = any($1::uuid[]);

-- name: claimed
-- After a claim whose commit is in doubt: what of it is ours. By its very instant: an entry that was
-- read long ago may be of a task that an earlier claim of ours has taken, and a worker ended.
select t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost, t.payload,
       t.traceparent, t.parent
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version > c.version
where t.owner = $3 and t.claimed_at = $4 and case when t.status = 'running' then true end;

-- name: running
-- What the stream should hold: running under this very token, and not completed by a user's transaction.
select t.id, t.version, t.type, t.queue, t.occurrence, t.retry_count, t.timeout, t.on_lost, t.payload,
       t.traceparent, t.parent
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version = c.version
where case when t.status = 'running' then t.completion is null end;

-- name: expire
-- A one-off that was not claimed ends failed because it is later than its misfire grace, or because one that it
-- waited for did not complete. $4: the ids of what follows them.
with gone as (
    delete from tasks t using unnest($1::uuid[], $2::bigint[], $4::uuid[]) as c (id, version, follow_id)
    where t.id = c.id and t.version = c.version
      and case when t.status = 'pending' then not t.paused end
      and not t.begun and t.schedule is null
      and (extract(epoch from $3::timestamptz - t.next_run_at) > t.misfire_grace
           or t.following is not null)
      and {all_waits_seen t}
    returning t.*, c.follow_id, case when t.following is null then '"expired"'::jsonb else t.error end as why
), moved as (
    insert into finished_tasks (id, status, slot, version, retry_count, updated_at, occurrence,
        paused, {asked_for}, finished_at, error)
    select id, 'failed', slot, version + 1, retry_count, $3, occurrence, paused,
        {asked_for}, $3, why
    from gone
), attempt as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at,
                      error, follow_up)
    select id, type, queue, version + 1, occurrence, retry_count + 1, 'skipped', 'skipped', $3,
           why, case when on_failure is not null then follow_id end
    from gone
), over as (
    select id, awaited, 'failed' as status, $3 as at from gone
), outcomes as (
    select id, follow_id, on_failure as spec, version + 1 as token, occurrence, 'failed' as status,
           null::jsonb as result, why as error, traceparent, $3 as at
    from gone where on_failure is not null
), {let_waiting_go}, {follow_up}, waiting as (
    {now_waiting}
)
select id, null::bigint as version, null::smallint as slot, null::timestamptz as next_run_at,
       null::smallint as priority, null as queue, null as concurrency_key, null as fairness_key,
       null as slot_owner, true as expired
from gone
union all
select w.*, s.owner, false from waiting w join slots s on s.slot = w.slot;

-- name: start
-- Grant a token its one start; the same start_id may ask again.
update tasks set start_id = $3, worker = $4, started_at = coalesce(started_at, $5), updated_at = $5
where id = $1 and version = $2 and case when status = 'running' then true end
  and (start_id is null or start_id = $3)
returning id;

-- name: complete
-- Reports of success on one-off tasks that nothing follows: out of the hot table, with their run, in one statement.
-- What a user's transaction has committed of it (`completion`) counts more than the report.
with reported as (
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::timestamptz[],
                         $6::jsonb[]) as r (id, token, by, began, ended, result)
), gone as (
    delete from tasks t using reported r
    where t.id = r.id and t.version = r.token
      and case when t.status = 'running'
               then t.schedule is null and t.on_success is null and t.awaited is null end
    returning t.*, r.by, r.began, r.ended,
        case when t.completion is null then r.result else t.completion -> 'result' end as result
), moved as (
    insert into finished_tasks (id, status, slot, owner, version, retry_count, updated_at, occurrence,
        paused, {asked_for}, started_at, finished_at, worker, result)
    select id, 'completed', slot, owner, version, retry_count, $7, occurrence, paused,
        {asked_for}, began, $7, by, result
    from gone
), attempt as (
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, worker,
                      started_at, finished_at, recorded_at, result)
    select id, type, queue, version, occurrence, retry_count + 1, 'completed', 'completed', by, began,
           ended, $7, result
    from gone
)
select id, version, type, next_run_at, queue, concurrency_key from gone;

-- name: attempts
-- What deciding what follows needs to know.
select t.id, t.version, t.retry_count, t.max_retries, t.backoff, t.on_lost, t.occurrence,
       t.created_at, t.schedule, t.overrun, t.misfire_grace, t.done_until, t.runs_done, t.type,
       t.next_run_at, t.completion, t.on_success is not null as follows_success, t.on_failure is not null as follows_failure
from tasks t join unnest($1::uuid[], $2::bigint[]) as c (id, version)
  on t.id = c.id and t.version = c.version
where case when t.status = 'running' then true end;

-- name: settle
-- Every other end of an attempt, with what follows it. again_at: pending again then; null = ended
-- for good, as `status`. outcome null = no run (a snooze); its error, if any, says why it was given back, until
-- the next end of an attempt. A retry takes one of its retries, and
-- `next` is null. Else `next` is the occurrence that comes after this one, and what was skipped in
-- between is recorded: so no crash can lose one or repeat it. Not if the schedule has changed since it was
-- read, if somebody waits for the task who did not before, or if a user's transaction has completed the attempt:
-- the decision has to be made anew. follow_id: what follows this outcome; null: nothing.
with settled as (
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::boolean[],
                         $6::text[], $7::timestamptz[], $8::timestamptz[], $9::jsonb[], $10::jsonb[],
                         $11::text[], $12::timestamptz[], $13::int[], $14::jsonb[], $15::text[],
                         $16::boolean[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[],
                         $20::timestamptz[], $21::text[], $22::text[], $23::timestamptz[], $24::uuid[])
        as r (id, token, outcome, again_at, counts, by, began, ended, error, result, status, occurrence,
              attempt, schedule, overrun, ran, next, following, done_until, skip_until, skip_reason,
              zone_data, was_done_until, follow_id)
), again as (
    update tasks t set
        status = 'pending', next_run_at = r.again_at,
        retry_count = case when r.next is null then t.retry_count + r.counts::int else 0 end,
        owner = null, claimed_at = null, started_at = null, start_id = null, worker = null,
        completion = null, updated_at = $28,
        error = case when r.outcome is distinct from 'completed' then coalesce(
            r.error, case when t.error ->> 'type' is distinct from 'given_back' then t.error end) end,
        begun = r.next is null, occurrence = coalesce(r.next, t.occurrence),
        runs_done = t.runs_done + r.ran::int, following = r.following,
        done_until = coalesce(r.done_until, t.done_until), skip_until = r.skip_until,
        skip_reason = r.skip_reason, zone_data = coalesce(r.zone_data, t.zone_data),
        -- What is watched of a schedule: a failure is one of the whole occurrence.
        failed_in_row = case when r.next is null then t.failed_in_row
                             when r.outcome = 'completed' then 0 else t.failed_in_row + 1 end,
        silent_at = case when r.next is not null and r.outcome = 'completed'
                         then duly_silent_at(t.schedule, $28) else t.silent_at end,
        paused = t.paused or r.next is not null and r.outcome <> 'completed'
                 and duly_gives_up(t.schedule, t.failed_in_row + 1),
        paused_by = case when t.paused then t.paused_by
                         when r.next is not null and r.outcome <> 'completed'
                              and duly_gives_up(t.schedule, t.failed_in_row + 1) then 'system' end,
        paused_at = case when t.paused then t.paused_at
                         when r.next is not null and r.outcome <> 'completed'
                              and duly_gives_up(t.schedule, t.failed_in_row + 1) then $28 end
    from settled r
    where t.id = r.id and t.version = r.token and r.again_at is not null
      and case when t.status = 'running' then true end
      and t.schedule is not distinct from r.schedule and t.overrun = r.overrun
      and t.done_until is not distinct from r.was_done_until
      and (t.completion is null or r.outcome = 'completed')
    returning t.id, t.version, t.slot, t.next_run_at, t.priority, t.queue, t.concurrency_key,
        t.fairness_key, t.type, t.failed_in_row, t.on_success, t.on_failure, t.traceparent,
        r.next is not null and t.paused_by = 'system' and t.paused_at = $28 as gave_up
), gone as (
    delete from tasks t using settled r
    where t.id = r.id and t.version = r.token and r.again_at is null
      and case when t.status = 'running' then true end
      and t.schedule is not distinct from r.schedule and t.overrun = r.overrun
      and t.done_until is not distinct from r.was_done_until
      and (t.completion is null or r.outcome = 'completed')
      and {all_waits_seen t}
    returning t.*, r.by, r.began, r.status as last_status, r.result as last_result,
              r.error as last_error
), moved as (
    insert into finished_tasks (id, status, slot, owner, version, retry_count, updated_at, occurrence,
        paused, {asked_for}, started_at, finished_at, worker, result, error)
    select id, last_status, slot, owner, version, retry_count, $28, occurrence, paused,
        {asked_for}, began, $28, by, last_result, last_error
    from gone
), ended as (
    select id, version, type, queue, concurrency_key, on_success, on_failure, traceparent from again
    union all
    select id, version, type, queue, concurrency_key, on_success, on_failure, traceparent from gone
), attempt as (
    -- The occurrence is over unless it is tried again: then this is what became of it.
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, worker,
                      started_at, finished_at, recorded_at, error, result, follow_up)
    select e.id, e.type, e.queue, e.version, r.occurrence, r.attempt, r.outcome,
           case when r.again_at is null or r.next is not null
               then case r.outcome when 'completed' then 'completed' else 'failed' end end,
           r.by, r.began, r.ended, $28, r.error, r.result, r.follow_id
    from ended e join settled r on r.id = e.id and r.token = e.version
    where r.outcome is not null
), skipped as (
    -- A microsecond apart: so they have an order, and are not the same run.
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at,
                      error)
    select e.id, e.type, e.queue, e.version, s.occurrence, 1, 'skipped', 'skipped',
           $28 + s.place * interval '1 microsecond', s.error
    from ended e
    join unnest($25::uuid[], $26::timestamptz[], $27::jsonb[])
        with ordinality as s (id, occurrence, error, place) on s.id = e.id
), gave_up as (
    insert into alerts (kind, task_id, type, queue, since, raised_at, tell_at, details)
    select 'auto_paused', id, type, queue, $28, $28, $28,
           jsonb_build_object('failed_in_row', failed_in_row)
    from again where gave_up
    on conflict (task_id, kind) where cleared_at is null do nothing
), noted as (
    insert into audit (at, who, role, action, task_id, details)
    select $28, null, 'system', 'pause', id, jsonb_build_object('failed_in_row', failed_in_row)
    from again where gave_up
), over as (
    select id, awaited, last_status as status, $28 as at from gone
), outcomes as (
    select e.id, r.follow_id, case r.outcome when 'completed' then e.on_success else e.on_failure end as spec,
           e.version as token, r.occurrence,
           case r.outcome when 'completed' then 'completed' else 'failed' end as status,
           r.result, r.error, e.traceparent, $28 as at
    from ended e join settled r on r.id = e.id and r.token = e.version
    where r.follow_id is not null
), {let_waiting_go}, {follow_up}, waiting as (
    {now_waiting}
)
select e.id, a.version, a.slot, a.next_run_at, a.priority, a.queue, a.concurrency_key, a.fairness_key,
       s.owner as slot_owner, e.concurrency_key as freed_key, e.queue as of_queue, true as ended
from ended e left join again a on a.id = e.id left join slots s on s.slot = a.slot
union all
select w.*, s.owner, null, null, false from waiting w join slots s on s.slot = w.slot;
