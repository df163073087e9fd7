-- Who changed what, by day, as `runs`. `at` is the cluster's clock. Rows of one instant are in the order
-- of `id`. `who` is null on a node without tokens.

create sequence audit_ids;
create table audit (
    id      bigint not null default nextval('audit_ids'),
    at      timestamptz not null,
    who     text collate "C",
    role    text collate "C" not null,
    action  text collate "C" not null,
    task_id uuid not null,
    details jsonb,
    primary key (at, id)
) partition by range (at);
create index audit_task on audit (task_id, at, id);
create index audit_who on audit (who, at, id);
create index audit_action on audit (action, at, id);
create table audit_rest partition of audit default;
