-- What events tell.

-- name: event_facts
select id, type, queue, status, version, retry_count from tasks where id = any($1::uuid[])
union all
select id, type, queue, status, version, retry_count from finished_tasks where id = any($1::uuid[]);
