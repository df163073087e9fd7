-- A sweep sees at once that nothing is due, or in which slots, without a way down an index for each slot. The same
-- instant in another type: so no statement that has a better index in the order of `next_run_at` is planned with this one.
create index tasks_next on tasks ((next_run_at at time zone 'UTC')) where status = 'pending' and not paused;
