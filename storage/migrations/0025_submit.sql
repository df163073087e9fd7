-- Tasks from a user's own transaction: duly.submit. What is checked and stored is what POST /v1/tasks checks and
-- stores; tests compare the two field by field.

-- Whoever may not create schemas has this one made for them beforehand. A user of the same name has it in its
-- search path, so what makes tables must say where, and a node of the version before, which looks there first when
-- it starts, must find what has been applied.
do $$ begin
    if to_regnamespace('duly') is null then
        create schema duly;
    end if;
    execute format('alter function duly_make_day set search_path = %I, pg_temp', current_schema());
    execute format('alter function duly_make_partitions set search_path = %I, pg_temp', current_schema());
    if current_schema() <> 'duly' then
        create view duly.duly_migrations as select version, name, checksum from duly_migrations;
    end if;
end $$;

-- What nodes have in their settings, and the function needs to know; each node writes its own when it starts.
create table submission_limits (
    payload_bytes     integer not null,
    idempotency_ttl_s double precision not null,
    region            text collate "C",
    only_one          boolean primary key default true check (only_one)
);
insert into submission_limits (payload_bytes, idempotency_ttl_s) values (262144, 86400);

-- Refuse a submission because of a field; its name is also the column of the error.
create function duly_wrong(field text, message text, code text default '22023') returns void
language plpgsql as $$
begin
    raise exception '%: %', field, message using errcode = code, column = field;
end $$;

-- An option, whose JSON value must be of this kind; null if it is not given, or is given as null and `nullable`.
create function duly_option(options jsonb, field text, expected text, nullable boolean) returns jsonb
language plpgsql immutable as $$
declare
    value jsonb := options -> field;
    kind text := jsonb_typeof(value);
begin
    if kind = expected or kind is null then
        return value;
    elsif kind = 'null' and nullable then
        return null;
    end if;
    perform duly_wrong(field, format('expected %s, got %s', expected, kind));
end $$;

create function duly_text_option(
    options jsonb, field text, lowest integer, most integer, pattern text default '', nullable boolean default true
) returns text
language plpgsql immutable as $$
declare
    value text := duly_option(options, field, 'string', nullable) #>> '{}';
begin
    if length(value) not between lowest and most then
        perform duly_wrong(field, format('must have %s to %s characters', lowest, most));
    elsif value !~ pattern then
        perform duly_wrong(field, 'has characters other than A-Z a-z 0-9 _ . : / -');
    end if;
    return value;
end $$;

create function duly_choice_option(options jsonb, field text, choices text[]) returns text
language plpgsql immutable as $$
declare
    value text := duly_option(options, field, 'string', false) #>> '{}';
begin
    if value <> all (choices) then
        perform duly_wrong(field, 'must be one of ' || array_to_string(choices, ', '));
    end if;
    return coalesce(value, choices[1]);
end $$;

create function duly_number_option(
    options jsonb, field text, lowest numeric, most numeric, whole boolean default false, nullable boolean default false
) returns numeric
language plpgsql immutable as $$
declare
    value numeric := duly_option(options, field, 'number', nullable)::numeric;
begin
    if value not between lowest and most then
        perform duly_wrong(field, format('must be %s to %s', lowest, most));
    elsif whole and scale(value) > 0 then
        perform duly_wrong(field, 'must be a whole number');
    end if;
    return value;
end $$;

-- Seconds, of a number or an ISO 8601 duration with weeks, days, hours, minutes and seconds.
create function duly_seconds_option(options jsonb, field text, nullable boolean) returns double precision
language plpgsql immutable as $$
declare
    value jsonb := options -> field;
    parts text[];
    seconds numeric;
begin
    if jsonb_typeof(value) <> 'string' then
        seconds := duly_option(options, field, 'number', nullable)::numeric;
    elsif value is not null then
        parts := case when length(value #>> '{}') <= 100 then regexp_match(value #>> '{}',
            '^P(?=[0-9T])(?:([0-9]+(?:[.,][0-9]+)?)W)?(?:([0-9]+(?:[.,][0-9]+)?)D)?(?:T(?=[0-9])'
            '(?:([0-9]+(?:[.,][0-9]+)?)H)?(?:([0-9]+(?:[.,][0-9]+)?)M)?(?:([0-9]+(?:[.,][0-9]+)?)S)?)?$') end;
        if parts is null then
            perform duly_wrong(field, 'expected seconds (a number) or an ISO 8601 duration such as PT5M or P1DT2H');
        elsif array_to_string(parts, ' ') ~ '[.,].* ' then
            perform duly_wrong(field, 'only the last part may have a fraction');
        end if;
        select sum(replace(p.number, ',', '.')::numeric * p.seconds) into seconds
        from unnest(parts, array[604800, 86400, 3600, 60, 1]) as p (number, seconds);
    end if;
    if seconds not between 0 and 3155760000 then
        perform duly_wrong(field, 'a duration must be 0 to 100 years');
    end if;
    return seconds;
end $$;

create function duly_backoff_option(options jsonb) returns jsonb
language plpgsql immutable as $$
declare
    given jsonb := duly_option(options, 'backoff', 'object', true);
    name text;
begin
    if given is null then
        return null;
    end if;
    for name in select jsonb_object_keys(given) loop
        if name not in ('kind', 'delay', 'factor', 'max_delay', 'jitter') then
            perform duly_wrong('backoff.' || name, 'is not a known field');
        end if;
    end loop;
    -- The fields by their names in messages.
    select jsonb_object_agg('backoff.' || f.key, f.value) into given from jsonb_each(given) f;
    given := coalesce(given, '{}');
    return jsonb_build_object(
        'kind', duly_choice_option(given, 'backoff.kind', '{exponential,linear,fixed}'),
        'delay', coalesce(duly_number_option(given, 'backoff.delay', 0, 31536000), 5.0),
        'factor', coalesce(duly_number_option(given, 'backoff.factor', 1, 1000), 2.0),
        'max_delay', coalesce(duly_number_option(given, 'backoff.max_delay', 0, 31536000), 3600.0),
        'jitter', coalesce(duly_number_option(given, 'backoff.jitter', 0, 1), 0.1));
end $$;

create function duly_tags_option(options jsonb) returns jsonb
language plpgsql immutable as $$
declare
    tags jsonb := coalesce(duly_option(options, 'tags', 'object', false), '{}');
    tag record;
    count integer := 0;
begin
    for tag in select key, value from jsonb_each(tags) loop
        count := count + 1;
        if length(tag.key) not between 1 and 100 then
            perform duly_wrong('tags', 'a name must have 1 to 100 characters');
        elsif jsonb_typeof(tag.value) <> 'string' then
            perform duly_wrong('tags.' || tag.key, 'expected string, got ' || jsonb_typeof(tag.value));
        elsif length(tag.value #>> '{}') > 500 then
            perform duly_wrong('tags.' || tag.key, 'must have 0 to 500 characters');
        end if;
    end loop;
    if count > 16 then
        perform duly_wrong('tags', 'must be 16 at most');
    end if;
    return tags;
end $$;

-- A payload that nodes and workers can handle: its size, the digits of its numbers, how deep it is.
create function duly_checked_payload(payload jsonb, most_bytes integer) returns jsonb
language plpgsql immutable as $$
declare
    written text := payload::text;
begin
    if octet_length(written) > most_bytes then
        perform duly_wrong('payload', format('is larger than %s bytes', most_bytes));
    elsif length(written) - length(translate(written, '[{', '')) > 200 and jsonb_path_exists(
        payload, 'strict $.**{200 to last} ? (@.type() == "array" || @.type() == "object")') then
        perform duly_wrong('payload', 'is nested deeper than 200');
    elsif written ~ '[0-9.]{250}' and exists (
        select from jsonb_path_query(payload, 'strict $.** ? (@.type() == "number")') as n (number)
        where length(translate(n.number::text, '-.', '')) > 1000) then
        perform duly_wrong('payload', 'has a number of more than 1000 digits');
    end if;
    return payload;
end $$;

-- The same for values that say the same, however their numbers are written.
create function duly_normal(value jsonb) returns jsonb
language sql immutable as $$
    select case jsonb_typeof(value)
        when 'number' then to_jsonb(trim_scale(value::numeric))
        when 'array' then coalesce((select jsonb_agg(duly_normal(e.item) order by e.place)
                                    from jsonb_array_elements(value) with ordinality as e (item, place)), '[]')
        when 'object' then coalesce((select jsonb_object_agg(m.key, duly_normal(m.value))
                                     from jsonb_each(value) m), '{}')
        else value end
$$;

create function duly_slot(id uuid) returns smallint language sql immutable as $$
    select get_byte(sha256(uuid_send(id)), 0)::smallint
$$;

-- A new id (UUID version 7, RFC 9562: milliseconds, then twelve bits of the fraction) in a slot that this store
-- holds, or in this one.
create function duly_new_id(at timestamptz, wanted smallint) returns uuid
language plpgsql as $$
declare
    us bigint := floor(extract(epoch from at) * 1000000);
    head text := lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0');
    id uuid;
begin
    for i in 1 .. 20000 loop
        -- The other half as gen_random_uuid makes it.
        id := (head || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid;
        if duly_slot(id) = wanted or wanted is null and exists (select from slots s where s.slot = duly_slot(id)) then
            return id;
        end if;
    end loop;
    raise exception 'this store holds no slots' using errcode = 'DU001';
end $$;

-- In which slot a task must be, and null if it may be in any: of several stores one sees all tasks of a key.
create function duly_slot_for(key text, concurrency_key text, own_id uuid) returns smallint
language plpgsql as $$
declare
    wanted smallint := duly_slot_of_key(coalesce(concurrency_key, key));
begin
    if not exists (select from this_store) then
        return null;
    elsif key is not null and concurrency_key is not null then
        perform duly_wrong('concurrency_key',
                           'and idempotency_key cannot be had by one task where there are several stores');
    elsif wanted is not null and not exists (select from slots s where s.slot = wanted) then
        perform duly_wrong(case when key is null then 'concurrency_key' else 'idempotency_key' end,
                           'belongs to another store', 'DU001');
    elsif concurrency_key is not null and duly_slot(own_id) <> wanted then
        perform duly_wrong('id', 'is not in the slot of the concurrency_key: leave it out');
    elsif not exists (select from slots s where s.slot = duly_slot(own_id)) and own_id is not null then
        perform duly_wrong('id', 'belongs to another store', 'DU001');
    end if;
    return wanted;
end $$;

-- The task that has the idempotency key: this one (null), or the first that had it.
create function duly_first_with_key(
    its_key text, id uuid, its_fingerprint bytea, at timestamptz, until timestamptz
) returns uuid
language plpgsql as $$
declare
    first record;
begin
    insert into idempotency_keys as k (key, task_id, fingerprint, expires_at)
    values (its_key, id, its_fingerprint, until)
    on conflict (key) do update set
        task_id = case when k.expires_at <= at then excluded.task_id else k.task_id end,
        fingerprint = case when k.expires_at <= at then excluded.fingerprint else k.fingerprint end,
        expires_at = case when k.expires_at <= at then excluded.expires_at else k.expires_at end
    returning k.task_id, k.fingerprint, k.expires_at into first;
    if first.task_id = id and first.expires_at = until then
        return null;
    elsif first.fingerprint <> its_fingerprint then
        perform duly_wrong('idempotency_key', 'was used with other values', '23505');
    elsif not exists (select from tasks t where t.id = first.task_id)
          and not exists (select from finished_tasks f where f.id = first.task_id) then
        perform duly_wrong('idempotency_key',
                           format('its task, %s, has ended and is no longer kept', first.task_id), '23505');
    end if;
    return first.task_id;
end $$;

-- Where a node hears of what concerns it.
create function duly_channel(node text) returns text language sql immutable as $$
    select 'duly_' || md5(node)
$$;

-- Tell the owner of its slot of a task that is due soon, once this transaction commits. What is due later, the
-- owner reads in time. Off with `set duly.notices = off`: then a sweep finds it, within half a second.
create function duly_tell_owner(
    id uuid, due timestamptz, priority integer, queue text, concurrency_key text, fairness_key text, at timestamptz
) returns void
language plpgsql as $$
declare
    its_owner text;
begin
    if due < at + interval '5 seconds' and coalesce(current_setting('duly.notices', true), '') <> 'off' then
        select s.owner into its_owner from slots s where s.slot = duly_slot(id);
        perform pg_notify(duly_channel(its_owner), jsonb_build_array(jsonb_build_array(
            id, duly_slot(id), to_char(due at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 0, priority, queue,
            concurrency_key, fairness_key
        ))::text)
        where its_owner is not null;
    end if;
end $$;

-- See duly.submit.
create function duly_submit(type text, payload jsonb, run_at timestamptz, options jsonb) returns uuid
language plpgsql as $$
#variable_conflict use_variable
declare
    at timestamptz := clock_timestamp();
    -- A field that the API has too is named here, read below, and stored: that is all there is to add.
    known constant text[] := '{id,queue,delay,max_retries,backoff,timeout,overrun,misfire_grace,on_lost,priority,'
        'idempotency_key,tags,concurrency_key,concurrency_limit,fairness_key,region,traceparent}';
    by_api constant text[] := '{schedule,name,on_success,on_failure,after}';
    limits submission_limits;
    field text;
    queue text;
    delay double precision;
    due timestamptz;
    max_retries integer;
    backoff jsonb;
    timeout double precision;
    overrun text;
    misfire_grace double precision;
    on_lost text;
    priority integer;
    key text;
    tags jsonb;
    concurrency_key text;
    concurrency_limit integer;
    fairness_key text;
    region text;
    traceparent text;
    own_id uuid;
    wanted smallint;
    new_id uuid;
    first_id uuid;
begin
    payload := coalesce(payload, 'null');
    options := coalesce(options, '{}');
    if jsonb_typeof(options) <> 'object' then
        perform duly_wrong('options', 'expected object, got ' || jsonb_typeof(options));
    end if;
    for field in select jsonb_object_keys(options) loop
        if field = any (by_api) then
            perform duly_wrong(field, 'goes by the API only');
        elsif field <> all (known) then
            perform duly_wrong(field, 'is not a known option');
        end if;
    end loop;
    select * into limits from submission_limits;

    if type is null then
        perform duly_wrong('type', 'is required');
    end if;
    perform duly_text_option(jsonb_build_object('type', type), 'type', 1, 200, '^[A-Za-z0-9_.:/-]+$');
    perform duly_checked_payload(payload, limits.payload_bytes);
    delay := duly_seconds_option(options, 'delay', true);
    if run_at is not null and delay is not null then
        perform duly_wrong('delay', 'give run_at or delay, not both');
    elsif not (run_at >= timestamptz '1970-01-01 00:00Z' and run_at < timestamptz '3000-01-01 00:00Z') then
        perform duly_wrong('run_at', 'a time must be in the years 1970 to 2999');
    end if;
    due := coalesce(run_at, at + delay * interval '1 second', at);

    queue := coalesce(duly_text_option(options, 'queue', 1, 100, '^[A-Za-z0-9_.:/-]+$', false), 'default');
    if queue ~ '(^|/)\.\.?(/|$)' then
        perform duly_wrong('queue', 'has a part that is . or ..');
    end if;
    max_retries := coalesce(duly_number_option(options, 'max_retries', 0, 100000, true), 3);
    backoff := duly_backoff_option(options);
    timeout := coalesce(duly_seconds_option(options, 'timeout', false), 300);
    if timeout <= 0 or timeout > 2592000 then
        perform duly_wrong('timeout', 'must be more than 0 and at most 2,592,000 s');
    end if;
    overrun := duly_choice_option(options, 'overrun', '{skip,queue}');
    misfire_grace := duly_seconds_option(options, 'misfire_grace', true);
    on_lost := duly_choice_option(options, 'on_lost', '{retry,fail}');
    priority := coalesce(duly_number_option(options, 'priority', 0, 9, true), 5);
    key := duly_text_option(options, 'idempotency_key', 1, 255);
    tags := duly_tags_option(options);
    concurrency_key := duly_text_option(options, 'concurrency_key', 1, 255);
    concurrency_limit := duly_number_option(options, 'concurrency_limit', 1, 10000, true, true);
    if concurrency_key is not null then
        concurrency_limit := coalesce(concurrency_limit, 1);
    elsif concurrency_limit is not null then
        perform duly_wrong('concurrency_limit', 'goes with a concurrency_key');
    end if;
    fairness_key := duly_text_option(options, 'fairness_key', 1, 255);
    region := duly_text_option(options, 'region', 1, 50);
    if region is distinct from limits.region and region is not null then
        perform duly_wrong('region', 'is not that of this cluster; for another one goes by the API only');
    end if;
    traceparent := duly_text_option(options, 'traceparent', 55, 55);
    if traceparent !~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then
        perform duly_wrong('traceparent', 'is not as version 00 of W3C Trace Context has it');
    end if;
    if duly_text_option(options, 'id', 32, 36)
       !~* '^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$' then
        perform duly_wrong('id', 'is not a UUID');
    end if;
    own_id := (options ->> 'id')::uuid;

    wanted := duly_slot_for(key, concurrency_key, own_id);
    new_id := coalesce(own_id, duly_new_id(at, wanted));
    if key is not null then
        first_id := duly_first_with_key(
            key, new_id,
            sha256(convert_to(jsonb_build_array(type, duly_normal(payload), extract(epoch from run_at),
                                                duly_normal(options - 'idempotency_key'))::text, 'UTF8')),
            at, at + limits.idempotency_ttl_s * interval '1 second');
        if first_id is not null then
            return first_id;
        end if;
    end if;
    insert into tasks (id, type, queue, payload, next_run_at, occurrence, max_retries, backoff, timeout, overrun,
                       misfire_grace, on_lost, priority, idempotency_key, tags, concurrency_key,
                       concurrency_limit, fairness_key, region, traceparent, created_at, updated_at)
    values (new_id, type, queue, payload, due, due, max_retries, backoff, timeout, overrun,
            misfire_grace, on_lost, priority, key, tags, concurrency_key,
            concurrency_limit, fairness_key, region, traceparent, at, at)
    on conflict (id) do nothing;
    -- Looked for after the insert: it waited for whoever was moving the row of this id.
    if not found or own_id is not null and exists (select from finished_tasks f where f.id = own_id) then
        perform duly_wrong('id', 'there is a task with the id ' || new_id, '23505');
    end if;
    perform duly_tell_owner(new_id, due, priority, queue, concurrency_key, fairness_key, at);
    return new_id;
end $$;

-- Submit a task within the caller's transaction: there is one exactly if that commits. `run_at` null: now. `options`
-- has the other fields of POST /v1/tasks. Answers its id. A wrong field: SQLSTATE 22023, and its name is the column
-- of the error; 23505: the id is taken, or the idempotency key was used with other values.
create function duly.submit(
    type text, payload jsonb default 'null', run_at timestamptz default null, options jsonb default '{}'
) returns uuid
language plpgsql security definer as $$
begin
    return duly_submit(type, payload, run_at, options);
end $$;
revoke execute on function duly.submit(text, jsonb, timestamptz, jsonb) from public;

-- With the rights of Duly's own user, it looks nowhere but where Duly's tables are.
do $$ begin
    execute format('alter function duly.submit(text, jsonb, timestamptz, jsonb) '
                   'set search_path = pg_catalog, %I, pg_temp', current_schema());
end $$;
