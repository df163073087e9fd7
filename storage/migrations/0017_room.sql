-- The claim in turn is a statement of its own now, and asks this function only for room.

drop function duly_claim_in_turn(text, uuid[], bigint[], text, smallint[], bigint[], timestamptz, integer, text[], text);

-- Which of these tasks may be claimed now (`held` is null): in the order given, as many as their concurrency keys
-- and, if `of_queue` is not null, the max_in_flight of that queue, of which they all are, have room for. `keys`: of
-- the tasks at these versions, null where a task has none. One that does not wait at its version is not answered.
-- Whoever holds the lock of a key or queue counts every claim of it: each statement in here sees all that was
-- committed before the statement began, also later than the one that calls this, and a lock is let go after the
-- claim is committed, by the commit itself. So the claim has to be in the same transaction. Nothing is waited for:
-- where another claim holds the lock, or there is no room, `held` says so.
create function duly_room(ids uuid[], versions bigint[], keys text[], of_queue text)
returns table (id uuid, version bigint, held text)
language plpgsql
-- A plain index scan marks the dead entries that it meets, and the next count need not look at them.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    one record;
    room bigint;
    mine text[] := '{}';
    running bigint[] := '{}';
    place integer;
    why text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise 'a claim in turn needs read committed, not %', current_setting('transaction_isolation');
    end if;
    for one in select distinct k.key from unnest(keys) as k (key) where k.key is not null order by k.key loop
        if pg_try_advisory_xact_lock(hashtextextended(one.key, 1685417081)) then
            mine := mine || one.key;
        end if;
    end loop;
    if of_queue is not null then
        if not pg_try_advisory_xact_lock(hashtextextended(of_queue, 1685417082)) then
            return query select i.id, i.version, 'queue_busy' from unnest(ids, versions) as i (id, version);
            return;
        end if;
        -- Through the index of running tasks, of which there are few, whatever a queue has: `|| ''` hides
        -- the queue from the others. No index on it: every claim of every queue would have to maintain it.
        select q.max_in_flight - (select count(*) from tasks r
                                  where r.status = 'running' and r.queue || '' = of_queue)
        into room from queues q where q.queue = of_queue and q.max_in_flight is not null;
    end if;
    select coalesce(array_agg((select count(*) from tasks r
                               where r.concurrency_key = m.key and r.status = 'running') order by m.place), '{}')
    into running from unnest(mine) with ordinality as m (key, place);
    for one in
        select c.id, c.version, c.key, coalesce(t.concurrency_limit, 1) as most, t.id is not null as waits
        from unnest(ids, versions, keys) with ordinality as c (id, version, key, place)
        left join tasks t
            on t.id = c.id and t.version = c.version and t.concurrency_key is not distinct from c.key
            and case when t.status = 'pending' then not t.paused end
        order by c.place
    loop
        place := array_position(mine, one.key);
        why := case when one.key is not null and place is null then 'busy'
                    when one.key is not null and one.waits and running[place] >= one.most then 'full'
                    when one.waits and room <= 0 then 'queue_full' end;
        continue when why is null and not one.waits;
        id := one.id;
        version := one.version;
        held := why;
        return next;
        if why is null then
            if place is not null then
                running[place] := running[place] + 1;
            end if;
            room := room - 1;
        end if;
    end loop;
end $$;
