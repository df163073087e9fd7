-- What follows the end of a task: a task of its own (`on_success`, `on_failure`), or those that wait for it.

alter table tasks
    -- As submitted, with every default filled in; null for nearly all.
    add column on_success jsonb,
    add column on_failure jsonb,
    -- The task that this one follows, and what became of it.
    add column parent     jsonb,
    -- As submitted, and what of it has not completed yet; while that is not null, next_run_at is in the year 9999.
    add column after      uuid[],
    add column waits_for  uuid[],
    -- How many rows of task_waits name this one as parent; null: none.
    add column awaited    integer;
alter table finished_tasks
    add column on_success jsonb,
    add column on_failure jsonb,
    add column parent     jsonb,
    add column after      uuid[];

-- The task that followed this outcome.
alter table runs add column follow_up uuid;

-- Which unfinished tasks are waited for, and by whom. A row goes with its parent's end.
create table task_waits (
    parent uuid not null,
    task   uuid not null,
    primary key (parent, task)
);

-- Of these slots: tasks that wait for others which would be in another store.
create function duly_waits_apart(moving smallint[]) returns bigint language sql stable as $$
    select count(*) from task_waits w
    where (get_byte(sha256(uuid_send(w.parent)), 0)::smallint = any (moving))
       <> (get_byte(sha256(uuid_send(w.task)), 0)::smallint = any (moving))
$$;

-- As before; and what waits for others stays in one store with them, also if it began to since the move began.
create or replace function duly_fence_slots(moving smallint[]) returns void language plpgsql as $$
begin
    lock table tasks in share row exclusive mode;
    if duly_waits_apart(moving) > 0 then
        raise exception 'tasks wait for others that would be in another store: move when these have ended';
    end if;
    update slot_moves m set state = 'fenced', epoch = s.epoch from slots s
    where s.slot = m.slot and m.slot = any (moving);
    perform duly_hold_slots(coalesce(array_agg(s.slot), '{}'), coalesce(array_agg(s.epoch), '{}'))
    from slots s where s.slot <> all (moving);
end $$;
