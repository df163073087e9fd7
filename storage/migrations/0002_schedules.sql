-- Periodic tasks: where each stands in its schedule.

alter table tasks
    -- Occurrences of the schedule that ran to an end, for `max_runs`.
    add column runs_done   bigint not null default 0,
    -- The occurrence that waits has had an attempt: it is not skipped any more.
    add column begun       boolean not null default false,
    -- Up to here every occurrence of the schedule has run, was skipped, or never counted.
    add column done_until  timestamptz,
    -- When the occurrence after this one comes due. A claim then, or later, has to look first what
    -- was missed. Null: it need not.
    add column following   timestamptz,
    -- What comes due up to here is still to be recorded as skipped, for this reason.
    add column skip_until  timestamptz,
    add column skip_reason text collate "C",
    -- Version of the zone data that the waiting occurrence was computed with.
    add column zone_data   text collate "C";

update tasks set begun = true where retry_count > 0;

create index tasks_zone_data on tasks (zone_data) where zone_data is not null;
