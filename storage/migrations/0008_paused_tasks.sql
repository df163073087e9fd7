-- Paused tasks are in no other index by slot; it costs nothing for those that are not paused.

create index tasks_paused_slot on tasks (slot) include (queue) where status = 'pending' and paused;
