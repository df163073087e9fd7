-- max_in_flight of a queue: by the same statement that claims tasks with concurrency keys.

drop function duly_claim_in_turn(text, uuid[], bigint[], text, smallint[], bigint[], timestamptz, integer, text[]);

-- Claim tasks in the order given, as many as their concurrency keys and, if `of_queue` is not null, the
-- max_in_flight of that queue, of which they all are, have room for. `keys`: of the tasks at these versions,
-- null where a task has none.
-- `claim` is the text of the statement that claims, so that its rule stands in one place.
-- Whoever holds the lock of a key or queue counts every claim of it: each statement in here sees all that was
-- committed before the statement began, and a lock is let go after its claim is committed, by the commit itself.
-- Nothing is waited for: where another claim holds the lock, or there is no room, nothing is claimed, and `held`
-- says so.
create function duly_claim_in_turn(
    claim text, ids uuid[], versions bigint[], owner text, slots smallint[], epochs bigint[],
    at timestamptz, inline_bytes integer, keys text[], of_queue text
) returns table (
    owned boolean, id uuid, version bigint, type text, queue text, occurrence timestamptz,
    retry_count integer, timeout double precision, on_lost text, payload jsonb, traceparent text,
    held text
) language plpgsql
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
    chosen_ids uuid[] := '{}';
    chosen_versions bigint[] := '{}';
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
            return query select true, i.id, i.version, null::text, null::text, null::timestamptz, null::integer,
                null::double precision, null::text, null::jsonb, null::text, 'queue_busy'
                from unnest(ids, versions) as i (id, version);
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
        if why is not null then
            owned := true;
            id := one.id;
            version := one.version;
            held := why;
            return next;
        elsif one.waits then
            chosen_ids := chosen_ids || one.id;
            chosen_versions := chosen_versions || one.version;
            if place is not null then
                running[place] := running[place] + 1;
            end if;
            room := room - 1;
        end if;
    end loop;
    held := null;
    for owned, id, version, type, queue, occurrence, retry_count, timeout, on_lost, payload,
        traceparent in
        execute claim using chosen_ids, chosen_versions, owner, slots, epochs, at, inline_bytes
    loop
        return next;
    end loop;
end $$;
