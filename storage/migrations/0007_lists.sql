-- For lists, to find what is rare at once, in the order of id. Only the first of each table costs every
-- task something; the others cost those tasks that they are about.

create index tasks_kind on tasks (queue, type, id);
create index tasks_paused on tasks (id) where paused;
create index tasks_periodic on tasks (id) where schedule is not null;
-- Without a list of pending entries, which every search would have to read from end to end.
create index tasks_tags on tasks using gin (tags jsonb_path_ops) with (fastupdate = off)
    where tags <> '{}';

create index finished_tasks_kind on finished_tasks (queue, type, status, id);
create index finished_tasks_uncompleted on finished_tasks (status, id) where status <> 'completed';
create index finished_tasks_periodic on finished_tasks (id) where schedule is not null;
create index finished_tasks_tags on finished_tasks using gin (tags jsonb_path_ops)
    with (fastupdate = off) where tags <> '{}';
