-- Tasks by queue and type, of waiting ones alone: a claim writes nothing to it. Lists find running tasks by tasks_running.
-- While an upgrade lasts, lists by queue or type find no index on nodes of the version before: slow, or 503 after 5 s, not wrong.

-- In this order reads need not wait for the first, which reads the table.
create index tasks_waiting_kind on tasks (queue, type, id) where status = 'pending';
drop index tasks_kind;
