-- Of no use for statements but those that ask in its own words. As an index of all that waits it was taken for small, and so for cheap,
-- where little waited when statistics were taken: then sweeps read all of it for each slot.
drop index tasks_next;
create index tasks_next on tasks ((next_run_at at time zone 'UTC')) where case when status = 'pending' then not paused end;
