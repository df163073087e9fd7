-- What was submitted here for another region, and whether it is there yet.

create table forwarded (
    id          uuid primary key,
    -- The order in which a region is handed its tasks.
    seq         bigint not null generated always as identity,
    region      text collate "C" not null,
    state       text collate "C" not null default 'waiting'
                check (state in ('waiting', 'delivered', 'refused', 'cancelled')),
    -- It may have arrived, whatever the answer was: from before it is sent until it surely was not.
    sent        boolean not null default false,
    accepted_at timestamptz not null,
    updated_at  timestamptz not null,
    -- Null while it waits.
    keep_until  timestamptz,
    -- As it came; null once it is delivered.
    body        bytea,
    key         text,
    fingerprint bytea,
    traceparent text,
    who         text,
    -- What it is called there: another id than here if its idempotency key had been used before.
    task_id     uuid,
    problem     jsonb,
    slot        smallint not null
                generated always as (get_byte(sha256(uuid_send(id)), 0)::smallint) stored,
    check ((state = 'waiting') = (keep_until is null))
);

create index forwarded_waiting on forwarded (region, seq) where state = 'waiting';
create index forwarded_refused on forwarded (region, seq) where state = 'refused';
create unique index forwarded_keys on forwarded (region, key) where state = 'waiting' and key is not null;
create index forwarded_over on forwarded (keep_until) where keep_until is not null;

-- Which node hands tasks to a region now, and whether it succeeds.
create table region_turns (
    region        text collate "C" primary key,
    holder        text not null,
    until         timestamptz not null,
    failing_since timestamptz,
    error         text
);

-- As submitted; null if no region was named.
alter table tasks add column region text collate "C";
alter table finished_tasks add column region text collate "C";
