-- Clock, partitions, retention.

-- name: server_time
-- The one place that reads the server's clock: the source of the cluster's clock. The timeline
-- grows with each promotion, and tokens jump by it.
select clock_timestamp() as now, (select timeline_id from pg_control_checkpoint()) as timeline,
       current_setting('transaction_read_only')::boolean as read_only;

-- One table a statement: they lock out its writers, who come to the two tables in another order.

-- name: make_partitions
select duly_make_partitions($1, $2, $3::date, $4::date);

-- name: drop_partitions
select duly_drop_partitions($1, $2, $3) as dropped;

-- name: expire_keys
delete from idempotency_keys where key in (
    select key from idempotency_keys where expires_at <= $1 order by expires_at limit 5000
    for update skip locked);

-- name: schema_version
select max(version) as version from duly_migrations;
