-- What `duly doctor` asks a database.

-- name: checkup
select current_setting('server_version_num')::int as version,
       split_part(current_setting('server_version'), ' ', 1) as version_text,
       current_setting('fsync') = 'on' as fsync,
       current_setting('full_page_writes') = 'on' as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('autovacuum') = 'on' as autovacuum,
       pg_is_in_recovery() as in_recovery,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as free_connections,
       to_regclass('duly_migrations') is not null as has_schema;

-- name: vacuum_state
-- Of `tasks`, as PostgreSQL last counted, and the oldest that keeps every vacuum from removing the rows that went since: what
-- it is, by how many transactions, and by how many seconds. Whoever has written is older than those who only see it at work, and is
-- seen from every database. A vacuum holds back no other. Sessions of others are seen only with the right to read all statistics.
select t.n_live_tup as live, t.n_dead_tup as dead, h.kind, h.name, h.owner, h.transactions,
       coalesce(extract(epoch from clock_timestamp() - h.since), 0)::float8 as open_s
from pg_stat_user_tables t left join lateral (
    select case backend_type when 'walsender' then 'standby' else 'session' end as kind, pid::text as name,
           concat_ws(', ', usename, nullif(application_name, '')) as owner, xact_start as since,
           case when datname = current_database() or backend_type = 'walsender'
                then greatest(age(backend_xmin), age(backend_xid)) else age(backend_xid) end as transactions,
           coalesce(age(backend_xid), 0) as written
    from pg_stat_activity
    where pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
      and pid not in (select pid from pg_stat_progress_vacuum)
    union all
    select 'prepared', gid, owner, prepared, age(transaction), age(transaction) from pg_prepared_xacts
    union all
    select 'slot', slot_name, '', null, age(xmin), 0 from pg_replication_slots
) h on h.transactions is not null
where t.relid = to_regclass('tasks')
order by h.transactions desc nulls last, h.written desc, h.since limit 1;
