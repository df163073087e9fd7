-- Slots on their way to another store, as the store tells that had them. `copying`: it still works on them.
-- `fenced`: nobody does, until the other one holds them. `moved`: the other one does.

create table slot_moves (
    slot  smallint primary key check (slot between 0 and 255),
    "to"  smallint not null,
    state text collate "C" not null check (state in ('copying', 'fenced', 'moved')),
    epoch bigint
);

-- Tasks and idempotency keys that have changed since they were copied.
create table slot_move_changes (
    place   bigint generated always as identity primary key,
    task_id uuid,
    key     text
);

create function duly_slot_of_key(key text) returns smallint language sql immutable as $$
    select get_byte(sha256(convert_to(key, 'UTF8')), 0)::smallint
$$;

-- Watches a table, whose column of this name is that of the task (or `key`), while slots of it move.
create function duly_slot_changed() returns trigger language plpgsql as $$
declare
    id text;
    its_state text;
begin
    if coalesce(current_setting('duly.moving', true), '') = 'on' then
        return null;
    end if;
    if tg_argv[0] = 'key' then
        id := case when tg_op = 'DELETE' then old.key else new.key end;
    elsif tg_argv[0] = 'id' then
        id := case when tg_op = 'DELETE' then old.id else new.id end;
    else
        id := case when tg_op = 'DELETE' then old.task_id else new.task_id end;
    end if;
    select m.state into its_state from slot_moves m
    where m.slot = case when tg_argv[0] = 'key' then duly_slot_of_key(id)
                        else get_byte(sha256(uuid_send(id::uuid)), 0)::smallint end;
    if its_state = 'copying' and tg_argv[0] = 'key' then
        insert into slot_move_changes (key) values (id);
    elsif its_state = 'copying' then
        insert into slot_move_changes (task_id) values (id::uuid);
    elsif its_state is not null then
        raise exception 'the slot of % is not in this store', id using errcode = 'DU001';
    end if;
    return null;
end $$;

-- Slots begin to move to another store. Waits for what is writing just now.
create function duly_watch_slots(moving smallint[], store smallint) returns void language plpgsql as $$
declare
    one record;
begin
    insert into slot_moves (slot, "to", state) select unnest(moving), store, 'copying'
    on conflict (slot) do update set "to" = store, state = 'copying';
    for one in select * from (values ('tasks', 'id'), ('finished_tasks', 'id'), ('rejected_reports', 'task_id'),
                                     ('idempotency_keys', 'key')) as t (name, of_task) loop
        continue when exists (select from pg_trigger t
                              where t.tgrelid = one.name::regclass and t.tgname = 'slot_changed');
        execute format('create trigger slot_changed after insert or update or delete on %I '
                       'for each row execute function duly_slot_changed(%L)', one.name, one.of_task);
    end loop;
end $$;

-- From now on nobody works on these slots, here or elsewhere.
create function duly_fence_slots(moving smallint[]) returns void language plpgsql as $$
begin
    lock table tasks, idempotency_keys in share row exclusive mode;
    update slot_moves m set state = 'fenced', epoch = s.epoch from slots s
    where s.slot = m.slot and m.slot = any (moving);
    perform duly_hold_slots(coalesce(array_agg(s.slot), '{}'), coalesce(array_agg(s.epoch), '{}'))
    from slots s where s.slot <> all (moving);
end $$;

-- The store that the slots were on their way to holds them; see duly_hold_slots.
create function duly_take_slots(held smallint[], above bigint[]) returns void language plpgsql as $$
begin
    perform duly_hold_slots(held, above);
    delete from slot_moves m where m.slot = any (held);
end $$;

-- Nothing is watched any more, unless slots move: but for keys, since those that have moved are to be refused.
create function duly_unwatch_slots() returns void language plpgsql as $$
declare
    name text;
begin
    if not exists (select from slot_moves where state <> 'moved') then
        foreach name in array array['tasks', 'finished_tasks', 'rejected_reports'] loop
            execute format('drop trigger if exists slot_changed on %I', name);
        end loop;
    end if;
end $$;
