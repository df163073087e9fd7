-- Who waits in a queue with another priority than that which tasks have by default, the best first, so that a
-- queue with millions due need not be looked through for them. The other tasks are not in it.

create index tasks_prioritised on tasks (queue, priority, next_run_at)
    include (slot, id, version, concurrency_key, fairness_key)
    where status = 'pending' and not paused and priority <> 5;
