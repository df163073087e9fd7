-- Clock, days, retention.

-- name: server_time
-- The one place that reads the server's clock: the source of the cluster's clock.
select clock_timestamp() as now;

-- name: try_write
-- A row lock is a write: refused where writes are, logged, and its commit waits for the standby. It
-- leaves no dead row behind, and nothing else locks this one.
select version from duly_migrations order by version limit 1 for update;

-- name: begin_snapshot
begin isolation level repeatable read, read only;

-- name: end_snapshot
commit;

-- name: begin_pooled
-- Settings for this transaction, and the process that it is served by.
select pg_backend_pid()
from (select count(set_config(s.name, s.value, true)) from unnest($1::text[], $2::text[]) as s (name, value)) done;

-- name: settle_sessions
-- Of these sessions of ours, those that are still there: because their commit waits for a standby, or
-- because they do not end within a second. The others have been ended.
select pid from pg_stat_activity
where pid = any($1::int[]) and application_name = $2
  and (coalesce(wait_event, '') = 'SyncRep' or not pg_terminate_backend(pid, 1000));

-- name: missing_days
-- Of these tables the days from $2 to $3 that have no partition, the first ones first.
select p.parent, d::date as day
from unnest($1::text[]) as p (parent), generate_series($2::date, $3::date, '1 day') as d
where to_regclass(duly_day_name(p.parent, d::date)) is null
order by d, p.parent;

-- name: make_day
select duly_make_day($1, $2, $3, $4) as made;

-- name: old_days
-- The days that ended before $3, of the tables $1 with the clock columns $2.
select p.parent, p.clock_column, d.day, d.stray, a.exported_at is not null as exported
from unnest($1::text[], $2::text[]) as p (parent, clock_column)
cross join lateral duly_days(p.parent, p.clock_column) as d
left join archived_days a on a.parent = p.parent and a.day = d.day
where duly_day_begins(d.day + 1) <= $3
order by d.day, p.parent;

-- name: drop_day
select duly_drop_day($1, $2, $3) as what;

-- name: drop_strays
select duly_drop_strays($1, $2, $3, $4) as deleted;

-- name: expire_keys
-- By their places, so that no plan looks through all keys for some thousands.
delete from idempotency_keys where expires_at <= $1 and ctid = any(array(
    select ctid from idempotency_keys where expires_at <= $1 order by expires_at limit 5000
    for update skip locked))
returning key;

-- name: schema_version
select max(version) as version from duly_migrations;
