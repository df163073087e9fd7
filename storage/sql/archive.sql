-- Exports of whole days.

-- name: archive_source
select id, clock_timestamp() as now from archive_source;

-- name: archive_days
-- The days of one table that ended before $3, the oldest first.
select d.day from duly_days($1, $2) as d where duly_day_begins(d.day + 1) <= $3 order by d.day;

-- name: watch_day
select what, place, life, state from duly_watch_day($1, $2, $3);

-- name: day_statement
-- The statement that reads a day, a JSON object a row. Straight from where the rows are: so it locks no other day.
select format('select row_to_json(d)::text from %I d where %s', $1::text, duly_within($2, $3)) as statement;

-- name: day_unchanged
select from archived_days where parent = $1 and day = $2 and state = $3 and not dropping;

-- name: day_exported
-- Unless rows were added since it had the state $3.
update archived_days set exported_at = coalesce(exported_at, $4), rows = $5, sha256 = $6
where parent = $1 and day = $2 and state = $3 and not dropping
returning day;
