-- Actions on all tasks that a filter finds, carried out by whichever node has taken the job.

create table bulk_jobs (
    id          uuid primary key,
    action      text collate "C" not null
                check (action in ('cancel', 'retry', 'pause', 'resume', 'reschedule')),
    -- As the parameters of a list.
    filter      jsonb not null,
    -- What a reschedule makes of next_run_at.
    due         timestamptz check ((due is not null) = (action = 'reschedule')),
    rate        double precision not null check (rate > 0),
    status      text collate "C" not null default 'running'
                check (status in ('running', 'stopping', 'stopped', 'done', 'failed')),
    total       bigint not null,
    exact       boolean not null,
    done        bigint not null default 0,
    refused     bigint not null default 0,
    -- The id after which it goes on.
    place       uuid,
    created_by  text collate "C",
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    finished_at timestamptz,
    error       text,
    -- Who carries it out; each take-over raises the epoch, without which nothing is recorded.
    owner       text,
    epoch       bigint not null default 0,
    check ((status in ('stopped', 'done', 'failed')) = (finished_at is not null))
);
create index bulk_jobs_open on bulk_jobs (created_at, id) where finished_at is null;
create index bulk_jobs_newest on bulk_jobs (created_at, id);
