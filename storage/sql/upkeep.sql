-- Clock, partitions, retention.

-- name: server_time
-- The one place that reads the server's clock: the source of the cluster's clock.
select clock_timestamp() as now;

-- name: try_write
-- A row lock is a write: refused where writes are, logged, and its commit waits for the standby. It
-- leaves no dead row behind, and nothing else locks this one.
select version from duly_migrations order by version limit 1 for update;

-- name: settle_sessions
-- Of these sessions of ours, those that are still there: because their commit waits for a standby, or
-- because they do not end within a second. The others have been ended.
select pid from pg_stat_activity
where pid = any($1::int[]) and application_name = $2
  and (coalesce(wait_event, '') = 'SyncRep' or not pg_terminate_backend(pid, 1000));

-- One table a statement: they lock out its writers, who come to the two tables in another order.

-- name: make_partitions
select duly_make_partitions($1, $2, $3::date, $4::date);

-- name: drop_partitions
select duly_drop_partitions($1, $2, $3) as dropped;

-- name: expire_keys
-- By their places, so that no plan looks through all keys for some thousands.
delete from idempotency_keys where expires_at <= $1 and ctid = any(array(
    select ctid from idempotency_keys where expires_at <= $1 order by expires_at limit 5000
    for update skip locked))
returning key;

-- name: schema_version
select max(version) as version from duly_migrations;
