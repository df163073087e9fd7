-- The ledger: what became of each occurrence, in the row of `runs` that ended it. Rows from before have
-- no `type`; of those the ledger of a task works out which end an occurrence.

alter table runs
    add column type    text collate "C",
    add column queue   text collate "C",
    -- completed, failed, cancelled or skipped; null: the occurrence goes on after this attempt.
    add column verdict text collate "C";

-- Both grow at their end only. The second is for what is looked for among many that completed.
create index runs_verdicts on runs (recorded_at) where verdict is not null;
create index runs_not_completed on runs (verdict, recorded_at)
    where verdict in ('failed', 'cancelled', 'skipped');

-- Reports that were refused because their token was not the row's. The same one again on one day (`day`
-- is its beginning, in UTC) is counted in `times`. `worker` is empty where it did not say who it is;
-- `started_at` and `finished_at` are what it said, and `occurrence` is that of the attempt.
create table rejected_reports (
    task_id     uuid not null,
    token       bigint not null,
    outcome     text collate "C" not null,
    worker      text collate "C" not null,
    day         timestamptz not null,
    received_at timestamptz not null,
    type        text collate "C" not null,
    queue       text collate "C" not null,
    occurrence  timestamptz not null,
    started_at  timestamptz,
    finished_at timestamptz,
    error       jsonb,
    times       bigint not null,
    primary key (task_id, day, token, outcome, worker)
) partition by range (day);
create index rejected_reports_received on rejected_reports (received_at);
create table rejected_reports_rest partition of rejected_reports default;
