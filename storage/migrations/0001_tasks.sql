-- The store of Duly: tasks that are waiting or running, what became of the finished ones, and who
-- owns the slots. Every instant is written by the caller, on the cluster's clock; nothing here
-- reads a clock.

create table tasks (
    id              uuid primary key,
    type            text collate "C" not null,
    queue           text collate "C" not null,
    payload         jsonb not null,
    next_run_at     timestamptz,
    status          text collate "C" not null default 'pending'
                    check (status in ('pending', 'running', 'completed', 'failed', 'cancelled')),
    -- The first byte of a SHA-256: spreads ids of any kind evenly, and is the same on every
    -- version, platform and language.
    slot            smallint not null
                    generated always as (get_byte(sha256(uuid_send(id)), 0)::smallint) stored,
    owner           text,
    version         bigint not null default 0,
    retry_count     integer not null default 0 check (retry_count >= 0),
    max_retries     integer not null default 3 check (max_retries >= 0),
    interval        interval,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    -- Due time of the current occurrence: the same over all of its retries.
    occurrence      timestamptz not null,
    paused          boolean not null default false,
    backoff         jsonb,
    timeout         double precision not null default 300 check (timeout > 0),
    schedule        jsonb,
    overrun         text collate "C" not null default 'skip' check (overrun in ('skip', 'queue')),
    misfire_grace   double precision check (misfire_grace >= 0),
    on_lost         text collate "C" not null default 'retry' check (on_lost in ('retry', 'fail')),
    priority        smallint not null default 5 check (priority between 0 and 9),
    idempotency_key text,
    tags            jsonb not null default '{}',
    claimed_at      timestamptz,
    started_at      timestamptz,
    start_id        text,
    worker          text,
    error           jsonb,
    check (status <> 'pending' or next_run_at is not null),
    check (status <> 'running' or (owner is not null and claimed_at is not null))
) with (
    -- Rows come and go fast: vacuum after 1 % of the table, at full speed.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);

-- What the prefetcher reads: index-only, per slot, in due order. A status led index would make
-- every completion several times slower.
create index tasks_due on tasks (slot, next_run_at, id) include (version, priority, queue)
    where status = 'pending' and not paused;
create index tasks_running on tasks (slot, claimed_at) where status = 'running';

-- Finished one-off tasks. By day, so that retention drops whole partitions.
create table finished_tasks (
    id              uuid not null,
    type            text collate "C" not null,
    queue           text collate "C" not null,
    payload         jsonb not null,
    status          text collate "C" not null check (status in ('completed', 'failed', 'cancelled')),
    slot            smallint not null,
    owner           text,
    version         bigint not null,
    retry_count     integer not null,
    max_retries     integer not null,
    interval        interval,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    occurrence      timestamptz not null,
    paused          boolean not null,
    backoff         jsonb,
    timeout         double precision not null,
    schedule        jsonb,
    overrun         text collate "C" not null,
    misfire_grace   double precision,
    on_lost         text collate "C" not null,
    priority        smallint not null,
    idempotency_key text,
    tags            jsonb not null,
    started_at      timestamptz,
    finished_at     timestamptz not null,
    worker          text,
    result          jsonb,
    error           jsonb,
    primary key (id, finished_at)
) partition by range (finished_at);
create table finished_tasks_rest partition of finished_tasks default;

-- One row an attempt that ended (or an occurrence that was skipped). `recorded_at` is the
-- cluster's clock; `started_at` and `finished_at` are what the worker said.
create table runs (
    task_id     uuid not null,
    token       bigint not null,
    occurrence  timestamptz not null,
    attempt     integer not null,
    outcome     text collate "C" not null
                check (outcome in ('completed', 'failed', 'lost', 'timed_out', 'cancelled', 'skipped')),
    worker      text,
    started_at  timestamptz,
    finished_at timestamptz,
    recorded_at timestamptz not null,
    error       jsonb,
    result      jsonb,
    primary key (task_id, token, recorded_at)
) partition by range (recorded_at);
create table runs_rest partition of runs default;

create table idempotency_keys (
    key         text primary key,
    task_id     uuid not null,
    fingerprint bytea not null,
    expires_at  timestamptz not null
);
create index idempotency_keys_expiry on idempotency_keys (expires_at);

-- The arbiter of slot ownership: a claim carries the epoch it believes in.
create table slots (
    slot     smallint primary key check (slot between 0 and 255),
    owner    text,
    epoch    bigint not null default 0,
    taken_at timestamptz
) with (fillfactor = 50);
insert into slots (slot) select generate_series(0, 255);

-- Make the day partitions of `parent` from `first_day` to `last_day` (UTC). Rows that had to go
-- to the default partition meanwhile move into their own.
create function duly_make_partitions(parent text, clock_column text, first_day date, last_day date)
returns void language plpgsql as $$
declare
    day date;
    name text;
    begins text;
    ends text;
begin
    perform pg_advisory_xact_lock(hashtext('duly_make_partitions'));
    for day in select generate_series(first_day, last_day, '1 day')::date loop
        name := parent || '_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(name) is not null;
        begins := quote_literal(to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00');
        ends := quote_literal(to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
        -- No row may be on its way into the default partition: it would be refused there later.
        execute format('lock table only %I in share row exclusive mode', parent);
        execute format('create table %I (like %I including all)', name, parent);
        execute format('with moved as (delete from %I where %I >= %s and %I < %s returning *) '
                       'insert into %I select * from moved',
                       parent || '_rest', clock_column, begins, clock_column, ends, name);
        execute format('alter table %I attach partition %I for values from (%s) to (%s)',
                       parent, name, begins, ends);
    end loop;
end $$;

-- Drop the day partitions of `parent` that end before `cutoff`; answers how many.
create function duly_drop_partitions(parent text, clock_column text, cutoff timestamptz)
returns integer language plpgsql as $$
declare
    name text;
    dropped integer := 0;
begin
    perform pg_advisory_xact_lock(hashtext('duly_make_partitions'));
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = to_regclass(parent) and c.relname ~ ('^' || parent || '_[0-9]{8}$')
          and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' <= cutoff
    loop
        execute format('drop table %I', name);
        dropped := dropped + 1;
    end loop;
    execute format('delete from %I where %I < %L', parent || '_rest', clock_column, cutoff);
    return dropped;
end $$;
