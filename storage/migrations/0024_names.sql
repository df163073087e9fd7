-- Names that clients give to tasks: of the unfinished ones each has its own. Tasks without one are in neither index.

alter table tasks add column name text collate "C";
alter table finished_tasks add column name text collate "C";

create unique index tasks_name on tasks (name) where name is not null;
create index finished_tasks_name on finished_tasks (name, id) where name is not null;
