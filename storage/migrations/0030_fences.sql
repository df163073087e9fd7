-- A fence of slots that move has a name and an end: if whoever moves them is gone or stands still, nodes take the slots back.

alter table slot_moves
    -- The last fence. Null: none yet, or one of the version before, which nodes leave alone.
    add column fence        uuid,
    -- Then nodes take the slots back, by this store's clock.
    add column fenced_until timestamptz;

-- In the store that slots are handed to: whether they came, or the fence was taken back. Who writes first has decided.
create table slot_fences (
    fence      uuid primary key,
    taken      boolean not null,
    decided_at timestamptz not null default now()
);

drop function duly_fence_slots(smallint[]);
create function duly_fence_slots(moving smallint[], its_fence uuid, lasts_s double precision)
returns void language plpgsql as $$
begin
    lock table tasks in share row exclusive mode;
    if duly_waits_apart(moving) > 0 then
        raise exception 'tasks wait for others that would be in another store: move when these have ended';
    end if;
    update slot_moves m set state = 'fenced', epoch = s.epoch, fence = its_fence,
                            fenced_until = clock_timestamp() + lasts_s * interval '1 second'
    from slots s where s.slot = m.slot and m.slot = any (moving);
    perform duly_hold_slots(coalesce(array_agg(s.slot), '{}'), coalesce(array_agg(s.epoch), '{}'))
    from slots s where s.slot <> all (moving);
end $$;

-- This store works on the slots again, and its changes are noted; nothing is done if they are not in this state of this fence any more.
drop function duly_unfence_slots(smallint[]);
create function duly_unfence_slots(moving smallint[], its_state text, its_fence uuid)
returns void language plpgsql as $$
begin
    lock table tasks in share row exclusive mode;
    update slot_moves set state = 'copying'
    where slot = any (moving) and state = its_state and fence is not distinct from its_fence;
    if not found then
        return;
    end if;
    perform duly_hold_slots(array_agg(h.slot), array_agg(h.epoch))
    from (select s.slot, s.epoch from slots s
          union
          select m.slot, m.epoch from slot_moves m where m.slot = any (moving) and m.state = 'copying') h;
end $$;

-- Refused (unique_violation) if the fence was taken back.
drop function duly_take_slots(smallint[], bigint[]);
create function duly_take_slots(held smallint[], above bigint[], its_fence uuid)
returns void language plpgsql as $$
begin
    insert into slot_fences (fence, taken) values (its_fence, true);
    perform duly_hold_slots(held, above);
    delete from slot_moves m where m.slot = any (held);
end $$;
