-- Tasks by queue and type, of waiting ones alone: a claim writes nothing to it. Lists find running tasks by tasks_running.
-- While an upgrade lasts, lists by queue or type find no index on nodes of the version before: slow, or 503 after 5 s, not wrong.
-- What takes the strongest lock comes first: one that is raised later would meet those that lock rows before they write.
drop index tasks_kind;
create index tasks_waiting_kind on tasks (queue, type, id) where status = 'pending';

-- A sweep sees at once that nothing is due, or in which slots, without a way down an index for each slot. The same
-- instant in another type: so no statement that wants its rows in the order of `next_run_at` is planned with this one.
create index tasks_next on tasks ((next_run_at at time zone 'UTC')) where status = 'pending' and not paused;
