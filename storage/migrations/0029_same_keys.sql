-- The fingerprint of a submission in SQL is that of the same submission to the API, so that either knows the other's
-- idempotency keys; see `fingerprint` in nodes/api/submissions.py. And a duration that is too small for a double is 0.

-- A string of JSON in ASCII.
create function duly_json_word(value text) returns text
language sql immutable as $$
    select case when value collate "C" ~ '^[ -~]*$' then to_json(value)::text else (
        select '"' || string_agg(case
            when c.code > 65535 then '\u' || to_hex(55296 + ((c.code - 65536) >> 10))
                                  || '\u' || to_hex(56320 + ((c.code - 65536) & 1023))
            when c.code > 126 then '\u' || lpad(to_hex(c.code), 4, '0')
            else substr(c.written, 2, length(c.written) - 2) end, '' order by c.place) || '"'
        from (select ascii(s.one) as code, to_json(s.one)::text as written, s.place
              from string_to_table(value, null) with ordinality as s (one, place)) c) end
$$;

-- A number without what does not matter of its spelling: as Python writes a normalized Decimal.
create function duly_number_word(value numeric) returns text
language sql immutable as $$
    select case
        when value = 0 then '0'
        when p.exponent <= 0 and p.before > -6 then trim_scale(value)::text
        else case when value < 0 then '-' else '' end || left(p.digits, 1)
             || case when length(p.digits) > 1 then '.' || substr(p.digits, 2) else '' end
             || 'E' || case when p.before > 0 then '+' else '' end || (p.before - 1) end
    from (select rtrim(w.whole, '0') as digits,
                 length(w.whole) - length(rtrim(w.whole, '0')) - scale(trim_scale(value)) as exponent,
                 length(w.whole) - scale(trim_scale(value)) as before
          from (select ltrim(translate(trim_scale(value)::text, '-.', ''), '0') as whole) w) p
$$;

-- The same text for values that say the same.
create function duly_comparable(value jsonb) returns text
language sql immutable as $$
    select case jsonb_typeof(value)
        when 'number' then '"\u0000' || duly_number_word(value::numeric) || '"'
        when 'string' then duly_json_word(value #>> '{}')
        when 'array' then '[' || coalesce((
            select string_agg(duly_comparable(e.item), ', ' order by e.place)
            from jsonb_array_elements(value) with ordinality as e (item, place)), '') || ']'
        when 'object' then '{' || coalesce((
            select string_agg(duly_json_word(m.key) || ': ' || duly_comparable(m.value), ', ' order by m.key collate "C")
            from jsonb_each(value) m), '') || '}'
        else value::text end
$$;

-- As the body of POST /v1/tasks would say it. The trace comes in a header there.
create function duly_submission(type text, payload jsonb, run_at timestamptz, options jsonb) returns jsonb
language sql immutable as $$
    select options - '{idempotency_key,traceparent}'::text[] || jsonb_build_object('type', type, 'payload', payload)
        || case when run_at is null then '{}' else jsonb_build_object('run_at',
            to_char(run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
            || coalesce(to_char(nullif(extract(microseconds from run_at)::integer % 1000000, 0), 'FM"."000000'), '')
            || '+00:00') end
$$;

create or replace function duly_seconds_option(options jsonb, field text, nullable boolean) returns double precision
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
    -- What is less than the smallest double, is none: so the API reads it.
    return case when seconds < 2.5e-324 then 0 else seconds end;
end $$;

create or replace function duly_submit(type text, payload jsonb, run_at timestamptz, options jsonb) returns uuid
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
            sha256(convert_to(duly_comparable(duly_submission(type, payload, run_at, options)), 'UTF8')),
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

drop function duly_normal(jsonb);
