-- What operators have set of queues; a queue without a row has no limits.

create table queues (
    queue         text collate "C" primary key,
    paused        boolean not null default false,
    paused_by     text collate "C",
    paused_at     timestamptz,
    -- Tasks a second over the whole cluster, and how many may go at once. Null: no limit; a burst that
    -- follows from the rate.
    rate          double precision check (rate > 0),
    burst         integer check (burst >= 1),
    max_in_flight integer check (max_in_flight >= 1),
    updated_at    timestamptz not null,
    updated_by    text collate "C",
    check (paused = (paused_at is not null))
);

-- A change need not be one of a task.
alter table audit alter column task_id drop not null;
