-- Moving slots between two stores: what each of them is asked and told. $1 is always the slots, if there are any.

-- name: move_session
-- This session copies, which triggers leave alone; it is gone soon after whoever had it, even if nobody says so.
select set_config('duly.moving', $1, false), set_config('tcp_keepalives_idle', '5', false),
       set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '3', false),
       -- Pages are read in the order of their ids, whatever is known of how large the tables are.
       set_config('enable_sort', 'off', false), set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false);

-- name: move_number
select number from this_store;

-- name: move_begin
-- One move at a time in each store; the lock goes with the session.
select pg_try_advisory_lock($1);

-- name: move_lock_limit
select set_config('lock_timeout', $1, true);

-- name: move_states
select slot, "to", state, fence from slot_moves where state <> 'cleared' or slot = any($1::smallint[]);

-- name: move_held
select slot from slots order by slot;

-- name: move_apart
-- Unfinished tasks that would be in another store than others of their concurrency key, or than their name is looked for.
select count(*) from tasks
where (concurrency_key is not null
       and (slot = any($1::smallint[])) <> (duly_slot_of_key(concurrency_key) = any($1::smallint[])))
   or (name is not null
       and (slot = any($1::smallint[])) <> (duly_slot_of_key(name) = any($1::smallint[])));

-- name: move_waits_apart
select duly_waits_apart($1::smallint[]) as count;

-- name: move_watch
select duly_watch_slots($1::smallint[], $2::smallint);

-- name: move_watch_table
select duly_watch_table($1, $2);

-- name: move_forget_changes
truncate slot_move_changes;

-- name: move_fence
select duly_fence_slots($1::smallint[], $2::uuid, $3::float8);

-- name: move_wait_for_writers
select duly_wait_for_writers($1);

-- name: move_unfence
select duly_unfence_slots($1::smallint[], $2, $3::uuid);

-- name: fence_taken_back
-- After `move_unfence`, in its transaction: whether this fence's slots are in this store, whoever took them back.
select count(*) = cardinality($1::smallint[]) from slot_moves
where slot = any($1::smallint[]) and state = 'copying' and fence = $2;

-- name: fences_over
-- Fences that nobody has ended in time. By this store's clock, which says when they are over, too.
select fence, "to", state, array_agg(slot order by slot) as slots from slot_moves
where state in ('fenced', 'handing') and fence is not null and fenced_until < clock_timestamp()
group by fence, "to", state;

-- name: fence_decide
-- In the store that they move to: the fence is taken back, unless that was decided before. It waits for who decides just now.
insert into slot_fences as f (fence, taken) values ($1, false)
on conflict (fence) do update set taken = f.taken returning taken;

-- name: move_hand
-- No row: the fence was taken back.
update slot_moves set state = 'handing'
where slot = any($1::smallint[]) and state = 'fenced' and fence = $2 returning slot;

-- name: move_epochs
select slot, epoch from slot_moves where slot = any($1::smallint[]);

-- name: move_take
-- In the store that they move to: all that it holds then, and above which epochs.
with held as (
    select h.slot, max(h.epoch) as epoch
    from (select slot, epoch from slots
          union all select * from unnest($1::smallint[], $2::bigint[])) as h (slot, epoch)
    group by h.slot
)
select duly_take_slots(array_agg(slot), array_agg(epoch), $3::uuid) from held;

-- name: move_moved
update slot_moves set state = 'moved'
where slot = any($1::smallint[]) and state = 'handing' and fence is not distinct from $2::uuid;

-- name: move_cleared
update slot_moves set state = 'cleared' where slot = any($1::smallint[]) and state = 'moved';

-- name: move_unwatch_table
select duly_unwatch_table($1, $2);

-- name: move_undone
delete from slot_moves where slot = any($1::smallint[]) and state = 'copying';

-- name: move_tasks_from
-- Tasks of these slots from $2 on, by their ids; at most $3.
(select id from tasks where slot = any($1::smallint[]) and id >= $2 order by id limit $3)
union
(select id from finished_tasks where slot = any($1::smallint[]) and id >= $2 order by id limit $3)
order by id limit $3;

-- name: move_keys_after
select key from idempotency_keys
where key > $2 and duly_slot_of_key(key) = any($1::smallint[]) order by key limit $3;

-- name: move_changes
select place, task_id, token, recorded_at, key from slot_move_changes order by place limit $1;

-- name: move_changes_done
delete from slot_move_changes where place = any($1::bigint[]);

-- name: move_delete_tasks
delete from tasks where id = any($1::uuid[]);

-- name: move_delete_finished_tasks
delete from finished_tasks where id = any($1::uuid[]);

-- name: move_delete_rejected_reports
delete from rejected_reports where task_id = any($1::uuid[]);

-- name: move_delete_task_waits
delete from task_waits where parent = any($1::uuid[]);

-- name: move_delete_runs
delete from runs where task_id = any($1::uuid[]);

-- name: move_delete_some_runs
delete from runs r using unnest($1::uuid[], $2::bigint[], $3::timestamptz[]) as c (task_id, token, recorded_at)
where r.task_id = c.task_id and r.token = c.token and r.recorded_at = c.recorded_at;

-- name: move_delete_idempotency_keys
delete from idempotency_keys where key = any($1::text[]);

-- name: move_columns
-- Of a table, without those that are computed.
select attname from pg_attribute
where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum;
