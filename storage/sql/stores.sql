-- Stores among several.

-- name: store_facts
-- What a store says of itself. `fresh`: nobody has used it yet. By indexes: what was
-- deleted may leave much of a table empty.
select (select number from this_store) as number,
       array(select slot from slots order by slot) as slots,
       not exists (select from slots where owner is not null or epoch > 0)
       and (select id from tasks order by id limit 1) is null
       and (select id from finished_tasks order by id limit 1) is null as fresh,
       array(select slot from slot_moves where state in ('fenced', 'handing') order by slot) as moving,
       array(select slot from slot_moves where state <> 'cleared' order by slot) as begun,
       (select min("to") from slot_moves where state <> 'cleared') as moving_to,
       (select max(state) from slot_moves where state <> 'cleared') as move_state,
       -- Whether somebody is at it: has the lock of `move_session`.
       exists (select from pg_locks l where l.locktype = 'advisory' and l.classid = 0 and l.objid = $1::bigint
               and l.database = (select oid from pg_database where datname = current_database())) as mover,
       split_part(current_setting('server_version'), ' ', 1) as version,
       (select max(name) from duly_migrations) as schema,
       (select greatest(reltuples, 0)::bigint from pg_class where oid = 'tasks'::regclass) as tasks,
       (select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'finished_tasks'::regclass) as finished,
       exists (select from queues where max_in_flight is not null) as limits;

-- name: held_slots
select slot from slots;
