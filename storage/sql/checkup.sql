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
