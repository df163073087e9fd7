-- Their conditions in words that no other statement uses: so each is of use only for what it was made for. PostgreSQL takes an index whose rows
-- have all gone, but for what no vacuum removed, for dear, and another one for small: sweeps read all of these two for each slot.
drop index tasks_next;
drop index tasks_waiting_kind;
create index tasks_waiting_kind on tasks (queue, type, id)
    where case status when 'pending' then true else false end;
create index tasks_next on tasks ((next_run_at at time zone 'UTC'))
    where case when paused then false else status = 'pending' end;
