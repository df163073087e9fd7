-- Moving slots: one move at a time, a fence that can be taken back without the other store, and runs copied one by one.

-- `handing`: as `fenced`, and the other store has been asked to take them: it may hold them already. `cleared`: as
-- `moved`, and this store has no rows of them any more.
alter table slot_moves drop constraint slot_moves_state_check;
alter table slot_moves add constraint slot_moves_state_check
    check (state in ('copying', 'fenced', 'handing', 'moved', 'cleared'));
-- The version before did not tell these apart.
update slot_moves set state = 'handing' where state = 'fenced';
update slot_moves set state = 'cleared'
where state = 'moved'
  and not exists (select from pg_trigger t where t.tgrelid = 'tasks'::regclass and t.tgname = 'slot_changed');

-- A run that was added or changed, of the task in `task_id`.
alter table slot_move_changes add column token bigint, add column recorded_at timestamptz;

create or replace function duly_slot_changed() returns trigger language plpgsql as $$
declare
    id text;
    its_state text;
begin
    if coalesce(current_setting('duly.moving', true), '') = 'on' then
        return null;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        -- It may not see that slots move, nor which.
        raise exception 'slots are on their way to another store' using errcode = 'serialization_failure';
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
    elsif its_state = 'copying' and tg_argv[0] = 'run' then
        insert into slot_move_changes (task_id, token, recorded_at)
        values (id::uuid, new.token, new.recorded_at);
    elsif its_state = 'copying' then
        insert into slot_move_changes (task_id) values (id::uuid);
    elsif its_state is not null then
        raise exception 'the slot of % is not in this store', id using errcode = 'DU001';
    end if;
    return null;
end $$;

-- Slots begin to move to another store. To be followed by `duly_watch_table` for each table, each in a
-- transaction of its own: who waits for two locks may wait for somebody who waits for the first.
create or replace function duly_watch_slots(moving smallint[], store smallint) returns void language sql as $$
    insert into slot_moves (slot, "to", state) select unnest(moving), store, 'copying'
    on conflict (slot) do update set "to" = store, state = 'copying', epoch = null
$$;

-- From now on changes of a table are noted. Waits for what is writing just now, also if they were noted
-- before: it may not have seen that these slots move.
create function duly_watch_table(name text, what text) returns void language plpgsql as $$
begin
    execute format('lock table %I in share row exclusive mode', name);
    if exists (select from pg_trigger t where t.tgrelid = name::regclass and t.tgname = 'slot_changed') then
        return;
    end if;
    execute format('create trigger slot_changed after insert or update%s on %I '
                   'for each row execute function duly_slot_changed(%L)',
                   case when what = 'run' then '' else ' or delete' end, name, what);
end $$;

-- Returns once whoever is writing to a table just now has ended.
create function duly_wait_for_writers(name text) returns void language plpgsql as $$
begin
    execute format('lock table %I in share row exclusive mode', name);
end $$;

create or replace function duly_fence_slots(moving smallint[]) returns void language plpgsql as $$
begin
    lock table tasks in share row exclusive mode;
    update slot_moves m set state = 'fenced', epoch = s.epoch from slots s
    where s.slot = m.slot and m.slot = any (moving);
    perform duly_hold_slots(coalesce(array_agg(s.slot), '{}'), coalesce(array_agg(s.epoch), '{}'))
    from slots s where s.slot <> all (moving);
end $$;

-- The fence is over, and nothing has been handed over: this store works on the slots again, and its changes are noted.
create function duly_unfence_slots(moving smallint[]) returns void language plpgsql as $$
begin
    perform duly_hold_slots(array_agg(h.slot), array_agg(h.epoch))
    from (select s.slot, s.epoch from slots s
          union
          select m.slot, m.epoch from slot_moves m
          where m.slot = any (moving) and m.state in ('fenced', 'handing')) h;
    update slot_moves set state = 'copying' where slot = any (moving) and state in ('fenced', 'handing');
end $$;

-- What would put a key into this store whose slot another one holds: for as long as that is so.
create function duly_key_elsewhere() returns trigger language plpgsql as $$
begin
    if coalesce(current_setting('duly.moving', true), '') <> 'on'
       and exists (select from slot_moves m
                   where m.slot = duly_slot_of_key(new.key) and m.state <> 'copying') then
        raise exception 'the slot of % is not in this store', new.key using errcode = 'DU001';
    end if;
    return null;
end $$;

-- Changes of a table are noted no more. A key of a slot that has moved is refused.
create function duly_unwatch_table(name text, what text) returns void language plpgsql as $$
begin
    execute format('drop trigger if exists slot_changed on %I', name);
    if what = 'key' then
        execute format('create or replace trigger keys_elsewhere after insert or update on %I '
                       'for each row execute function duly_key_elsewhere()', name);
    end if;
end $$;
drop function duly_unwatch_slots();
