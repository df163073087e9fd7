-- The fairness keys that wait in a queue, and the first of each; tasks without one are not in it.

create index tasks_fair on tasks (queue, fairness_key, priority, next_run_at) include (slot)
    where status = 'pending' and not paused and fairness_key is not null;
