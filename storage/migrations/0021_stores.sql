-- Several stores: each holds the tasks of the slots that have a row in `slots`. Nothing here costs a store
-- that is alone anything; it has no row in `this_store`, and no trigger.

create table this_store (
    -- Its place in `database_urls`, from 0 on.
    number   smallint primary key check (number between 0 and 63),
    only_one boolean not null default true unique check (only_one)
);

-- What would change a task of a slot that another store holds.
create function duly_slot_elsewhere() returns trigger language plpgsql as $$
begin
    if coalesce(current_setting('duly.moving', true), '') <> 'on' then
        raise exception 'slot % is not in this store',
            case when tg_op = 'DELETE' then old.slot else new.slot end using errcode = 'DU001';
    end if;
    return null;
end $$;

-- From now on this store holds these slots and no others. Their epochs begin above `above`. Waits for what is
-- writing tasks just now; what comes after it and is of another slot is refused.
create function duly_hold_slots(held smallint[], above bigint[]) returns void language plpgsql as $$
declare
    others smallint[];
begin
    lock table tasks in share row exclusive mode;
    insert into slots (slot, epoch) select h.slot, h.above + 1 from unnest(held, above) as h (slot, above)
    on conflict (slot) do nothing;
    delete from slots where slot <> all (held);
    others := array(select s from generate_series(0, 255) as s where s <> all (held));
    execute format('create or replace trigger tasks_elsewhere after insert or update on tasks for each row '
                   'when (new.slot = any (%L::smallint[])) execute function duly_slot_elsewhere()', others);
    execute format('create or replace trigger tasks_gone_elsewhere after delete on tasks for each row '
                   'when (old.slot = any (%L::smallint[])) execute function duly_slot_elsewhere()', others);
end $$;
