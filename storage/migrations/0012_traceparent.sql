-- The trace (W3C Trace Context) in which a task was submitted; null: none. A finished task does not keep it.

alter table tasks add column traceparent text collate "C";

-- As before, and it answers the column.
drop function duly_claim_in_turn(text, uuid[], bigint[], text, smallint[], bigint[], timestamptz, integer, text[]);
create function duly_claim_in_turn(
    claim text, ids uuid[], versions bigint[], owner text, slots smallint[], epochs bigint[],
    at timestamptz, inline_bytes integer, keys text[]
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
    mine text[] := '{}';
    current_key text;
    running bigint;
    chosen_ids uuid[] := '{}';
    chosen_versions bigint[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise 'a claim in turn needs read committed, not %', current_setting('transaction_isolation');
    end if;
    for one in select distinct k.key from unnest(keys) as k (key) order by k.key loop
        if pg_try_advisory_xact_lock(hashtextextended(one.key, 1685417081)) then
            mine := mine || one.key;
        end if;
    end loop;
    for one in
        select c.id, c.version, c.key, t.id is not null as waits, t.concurrency_limit, h.running
        from unnest(ids, versions, keys) with ordinality as c (id, version, key, place)
        left join (
            select m.key, (select count(*) from tasks r
                           where r.concurrency_key = m.key and r.status = 'running') as running
            from unnest(mine) as m (key)
        ) h on h.key = c.key
        left join tasks t
            on t.id = c.id and t.version = c.version and t.concurrency_key = c.key
            and case when t.status = 'pending' then not t.paused end
        order by c.key, c.place
    loop
        if current_key is distinct from one.key then
            current_key := one.key;
            running := one.running;
        end if;
        if running is null or (one.waits and running >= coalesce(one.concurrency_limit, 1)) then
            owned := true;
            id := one.id;
            version := one.version;
            held := case when running is null then 'busy' else 'full' end;
            return next;
        elsif one.waits then
            chosen_ids := chosen_ids || one.id;
            chosen_versions := chosen_versions || one.version;
            running := running + 1;
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
