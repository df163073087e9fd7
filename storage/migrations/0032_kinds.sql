-- Tasks by queue and type, of waiting ones alone: a claim writes nothing to it. Lists find running tasks by tasks_running.
-- While an upgrade lasts, lists by queue or type find no index on nodes of the version before: slow, or 503 after 5 s, not wrong.

drop index tasks_kind;
create index tasks_kind on tasks (queue, type, id) where status = 'pending';
