-- Watched schedules: what went silent, and what was paused after too many failures.

alter table tasks
    -- Occurrences in a row that ended in failure.
    add column failed_in_row integer not null default 0,
    -- When an alert is due, unless an occurrence completes before. Null: none is, or it was raised.
    add column silent_at     timestamptz;

create index tasks_silent on tasks (silent_at) where silent_at is not null;

-- When a task with this schedule is silent for too long, if it last was heard of at `since`.
create function duly_silent_at(schedule jsonb, since timestamptz) returns timestamptz
language sql stable as $$
    select greatest(since, (schedule ->> 'start_at')::timestamptz)
           + (schedule ->> 'expect_within')::double precision * interval '1 second'
$$;

-- Whether so many failures in a row are enough to pause a task with this schedule.
create function duly_gives_up(schedule jsonb, failures integer) returns boolean
language sql immutable as $$
    select coalesce((schedule ->> 'pause_after')::integer <= failures, false)
$$;

create sequence alert_ids;
create table alerts (
    id         bigint primary key default nextval('alert_ids'),
    kind       text collate "C" not null check (kind in ('silent', 'auto_paused')),
    task_id    uuid not null,
    type       text collate "C" not null,
    queue      text collate "C" not null,
    -- Since when what it tells of has lasted.
    since      timestamptz not null,
    raised_at  timestamptz not null,
    cleared_at timestamptz,
    details    jsonb not null,
    -- No node has logged it yet, or that it was cleared.
    news       boolean not null default true,
    -- When to tell the webhook (again); null: it knows.
    tell_at    timestamptz,
    tries      integer not null default 0
);
create index alerts_task on alerts (task_id, id);
-- What lasts is one alert, however often it is seen.
create unique index alerts_open on alerts (task_id, kind) where cleared_at is null;
create index alerts_news on alerts (id) where news;
create index alerts_to_tell on alerts (tell_at) where tell_at is not null;
