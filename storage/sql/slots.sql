-- Ownership of slots, and what an owner reads of them.

-- name: take_slots
-- Each take-over raises the epoch: no claim that carries an older one can commit after this. Of the
-- slots $4 only those that nobody else has taken since we let them go. It waits for nobody: a slot
-- whose row a claim of the old owner holds comes back without an epoch. `owner` is the old one.
-- Like tokens, epochs start anew with each timeline: a promotion may have lost the last take-overs.
with free as materialized (
    select slot from slots
    where slot = any($1::smallint[]) and (slot <> all($4::smallint[]) or owner is null or owner = $2)
    order by slot for update skip locked
), taken as (
    update slots s set owner = $2, taken_at = $3, free_since = null, epoch = 1 + greatest(s.epoch,
        (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint - 1) << 40)
    from free where s.slot = free.slot
    returning s.slot, s.epoch
)
select s.slot, s.owner, taken.epoch
from slots s left join taken on taken.slot = s.slot where s.slot = any($1::smallint[]);

-- name: let_go_slots
-- The higher epoch refuses the claims that were still to come.
update slots set owner = null, free_since = $3, epoch = epoch + 1
where slot in (
    select slot from slots where slot = any($1::smallint[]) and owner = $2 order by slot for update
);

-- name: slot_states
select slot, owner, epoch from slots where slot = any($1::smallint[]);

-- name: slot_map
select slot, owner, epoch, taken_at, free_since from slots order by slot;

-- name: end_sessions
-- End the sessions called any of $1 that have held locks on slots for $2 seconds and more: a paused
-- process that does not read the answer to its claim would hold them for ever. A commit that waits for
-- a standby is left alone: ended, it would count here and not there.
select pg_terminate_backend(a.pid) from pg_stat_activity a
where a.application_name = any($1::text[]) and a.usename = current_user
  and a.datname = current_database() and coalesce(a.wait_event, '') <> 'SyncRep'
  and a.xact_start < clock_timestamp() - make_interval(secs => $2)
  and exists (
    select from pg_locks l where l.pid = a.pid and l.relation = 'slots'::regclass
      and l.mode in ('RowShareLock', 'RowExclusiveLock')
  );

-- part: due_columns
t.id, t.slot, t.next_run_at, t.version, t.priority, t.queue, t.concurrency_key, t.fairness_key;

-- part: after_cursor
-- Of a slot without a cursor all is after it.
(next_run_at, id) > (coalesce(c.after_at, '-infinity'), coalesce(c.after_id, '00000000-0000-0000-0000-000000000000'));

-- name: due
-- Pending tasks of each slot, after its cursor and before $4, at most $5 a slot.
select {due_columns}
from unnest($1::smallint[], $2::timestamptz[], $3::uuid[]) as c (slot, after_at, after_id)
cross join lateral (
    select id, slot, next_run_at, version, priority, queue, concurrency_key, fairness_key from tasks
    where slot = c.slot and status = 'pending' and not paused
      and {after_cursor} and next_run_at < $4
    order by next_run_at, id limit $5
) t;

-- part: names
-- Of due rows `d`: the ids with their versions (16 and 8 bytes each, in order), and when the last one is due.
string_agg(uuid_send(d.id) || int8send(d.version), ''::bytea order by d.next_run_at, d.id) as names,
max(d.next_run_at) as last_at;

-- part: state_of_queues
-- A row without a slot that tells in which state the table `queues` is: a number that grows with each change of it,
-- since each sets a later `updated_at`. So a change is seen without a statement of its own.
select null, null, null, null,
       coalesce(sum((extract(epoch from updated_at) * 1000000)::bigint), 0)::text
from queues;

-- name: sweep
-- Pending tasks of these slots before $2, by name alone, since most of it is known to who asks: for each slot and
-- queue its names. At most $3, those of the first slots. And the state of `queues`.
with {where_due before}
select d.slot, d.queue, {names}, null::text as controls
from (
    select slot, id, next_run_at, version, queue from tasks
    where slot = any((select slots from look)::smallint[]) and status = 'pending' and not paused and next_run_at < $2
    order by slot, next_run_at, id limit $3
) d
group by d.slot, d.queue
union all
{state_of_queues};

-- name: sweep_by_slot
-- The same of each slot after its cursor and before $4, at most $5 a slot.
select c.slot, t.queue, t.names, t.last_at, null::text as controls
from unnest($1::smallint[], $2::timestamptz[], $3::uuid[]) as c (slot, after_at, after_id)
cross join lateral (
    select d.queue, {names}
    from (
        select id, next_run_at, version, queue from tasks
        where slot = c.slot and status = 'pending' and not paused
          and {after_cursor} and next_run_at < $4
        order by next_run_at, id limit $5
    ) d
    group by d.queue
) t
union all
{state_of_queues};

-- name: pending_tasks
-- Those of these ids that wait for their time, in due order.
select {due_columns} from tasks t
where t.id = any($1::uuid[]) and case when t.status = 'pending' then not t.paused end
order by t.next_run_at, t.id;

-- name: due_but
-- The same, but of the queues $6 only those due after $7, and so of the concurrency keys $9 in the
-- queues $8. There may be millions to leave out: so no more than $10 a slot are looked at. Where it ends
-- for that reason, the last one is answered too, wanted or not.
select {due_columns},
       t.wanted, t.place = $10 as more
from unnest($1::smallint[], $2::timestamptz[], $3::uuid[]) as c (slot, after_at, after_id)
cross join lateral (
    select l.*, row_number() over in_order as place,
           count(*) filter (where l.wanted) over in_order as wanted_so_far
    from (
        select id, slot, next_run_at, version, priority, queue, concurrency_key, fairness_key,
               (queue <> all($6::text[]) or next_run_at > $7)
               and (concurrency_key is null or next_run_at > $7
                    or (queue, concurrency_key) not in (select * from unnest($8::text[], $9::text[])))
               as wanted
        from tasks
        where slot = c.slot and status = 'pending' and not paused
          and {after_cursor} and next_run_at < $4
        order by next_run_at, id limit $10::bigint
    ) l
    window in_order as (order by l.next_run_at, l.id rows unbounded preceding)
) t
where (t.wanted and t.wanted_so_far <= $5::bigint) or (t.place = $10 and t.wanted_so_far < $5);

-- name: due_best
-- What is due by $3 of one queue, in the order in which it should run, without the concurrency keys $5 (null: without
-- any); with $6 only what has no fairness key. A priority is looked at only if those above it have fewer than $4.
-- There may be millions of the priority that tasks have by default, which are in no index of their own: of
-- those the first $7 of each slot are taken, of the first $8 of it that are due (null: of all) since $9 (null: ever).
select b.* from generate_series(9, 0, -1) as p (priority)
cross join lateral (
    (select id, slot, next_run_at, version, t.priority, queue, concurrency_key, fairness_key
     from tasks t
     where status = 'pending' and not paused and t.priority <> 5 and queue = $2
       and t.priority = p.priority and next_run_at <= $3 and slot = any($1::smallint[])
       and (concurrency_key is null or concurrency_key <> all($5::text[]))
       and (not $6::boolean or fairness_key is null)
     order by next_run_at limit $4::bigint)
    union all
    (select u.* from unnest($1::smallint[]) as s (slot)
     cross join lateral (
         select * from (
             select id, slot, next_run_at, version, priority, queue, concurrency_key, fairness_key
             from tasks t
             where t.slot = s.slot and status = 'pending' and not paused and next_run_at <= $3
               and next_run_at >= coalesce($9::timestamptz, '-infinity') and p.priority = 5
             order by next_run_at, id limit $8::bigint
         ) d
         where d.queue = $2 and d.priority = 5
           and (d.concurrency_key is null or d.concurrency_key <> all($5))
           and (not $6 or d.fairness_key is null)
         order by d.next_run_at, d.id limit $7::bigint
     ) u order by u.next_run_at limit $4)
) b limit $4;

-- name: fair_keys
-- The fairness keys of one queue's waiting tasks after $2, at most $3: one step in the index for each.
with recursive found as (
    (select fairness_key, 1 as number from tasks
     where status = 'pending' and not paused and queue = $1 and fairness_key > $2
     order by fairness_key limit 1)
    union all
    select (select t.fairness_key from tasks t
            where t.status = 'pending' and not t.paused and t.queue = $1
              and t.fairness_key > f.fairness_key
            order by t.fairness_key limit 1), f.number + 1
    from found f where f.fairness_key is not null and f.number < $3
)
select fairness_key from found where fairness_key is not null;

-- name: due_fair
-- What is due by $4 of one queue, the best $5 of each of the fairness keys $3, without the concurrency keys $6.
select d.* from unnest($3::text[]) as k (key)
cross join lateral (
    select e.* from generate_series(0, 9) as p (priority)
    cross join lateral (
        select id, slot, next_run_at, version, t.priority, queue, concurrency_key, fairness_key
        from tasks t
        where status = 'pending' and not paused and queue = $2 and fairness_key = k.key
          and t.priority = p.priority and next_run_at <= $4 and slot = any($1::smallint[])
          and (concurrency_key is null or concurrency_key <> all($6::text[]))
        order by next_run_at limit $5
    ) e order by e.priority desc, e.next_run_at limit $5
) d;

-- name: due_of_key
-- What is due by $4 of one concurrency key in one queue, in the order in which it should run. A priority is
-- looked at only if those above it have fewer than $5.
select d.* from generate_series(9, 0, -1) as p (priority)
cross join lateral (
    select id, slot, next_run_at, version, t.priority, queue, concurrency_key, fairness_key
    from tasks t
    where concurrency_key = $3 and queue = $2 and t.priority = p.priority and next_run_at <= $4
      and status = 'pending' and not paused and slot = any($1::smallint[])
    order by next_run_at limit $5::bigint
) d limit $5;

-- name: running_since
-- Running tasks of these slots that were claimed before $2: the reaper's suspects. ($4, $5) is the
-- place of the last one of the page before. `completion`: a user's transaction has completed the attempt.
select id, version, queue, claimed_at, timeout, owner, completion
from tasks where slot = any($1::smallint[]) and status = 'running' and claimed_at < $2
  and ($4::timestamptz is null or (claimed_at, id) > ($4, $5::uuid))
order by claimed_at, id limit $3;

-- name: running_queues
select distinct queue from tasks where status = 'running' and slot = any($1::smallint[]);

-- name: inflight_ids
-- Of these ids, which run under which token.
select id, version from tasks where id = any($1::uuid[]) and case when status = 'running' then true end;
