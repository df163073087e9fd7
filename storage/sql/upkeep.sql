-- Clock, partitions, retention.

-- name: server_time
-- The one place that reads the server's clock: the source of the cluster's clock. The timeline
-- grows with each promotion, and tokens jump by it.
select clock_timestamp() as now, (select timeline_id from pg_control_checkpoint()) as timeline;

-- name: make_partitions
select duly_make_partitions('finished_tasks', 'finished_at', $1::date, $2::date),
       duly_make_partitions('runs', 'recorded_at', $1::date, $2::date);

-- name: drop_partitions
select duly_drop_partitions('finished_tasks', 'finished_at', $1)
     + duly_drop_partitions('runs', 'recorded_at', $1) as dropped;

-- name: expire_keys
delete from idempotency_keys where key in (
    select key from idempotency_keys where expires_at <= $1 order by expires_at limit 5000
    for update skip locked);

-- name: schema_version
select max(version) as version from duly_migrations;
