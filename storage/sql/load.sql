-- How many tasks come due when.

-- name: due_in_slot
-- Of slot $1: how many tasks are due from $2 to before $3, counted up to $4; and when the last of these is.
select count(*) as counted, max(next_run_at) as until from (
    select c.next_run_at from tasks c
    where c.slot = $1 and c.status = 'pending' and not c.paused
      and c.next_run_at >= $2 and c.next_run_at < $3
    order by c.next_run_at limit $4
) c;

-- part: load name more
-- The tasks of the slots $1 due from $2 to before $3, by minute, of the $4 names that have the most; what
-- the others have has no name. Minute 0 begins at $2. Of the tasks in these slots $5 of 256 are counted.
with due as materialized (
    select {name} as name, date_bin('1 minute', c.next_run_at, $2) as minute, count(*) as n
    from unnest($1::smallint[]) as s (slot) cross join lateral (
        select c.id, c.queue, c.next_run_at from tasks c
        where c.slot = s.slot and c.status = 'pending' and not c.paused
          and c.next_run_at >= $2 and c.next_run_at < $3
          and ($5::int = 256 or (uuid_hash(c.id) & 255) < $5)
        offset 0
    ) as c {more}
    group by 1, 2
), most as materialized (
    select name from due group by name order by sum(n) desc, name limit $4
), named as (
    select m.name, d.minute, sum(d.n)::bigint as n from due d left join most m on m.name = d.name
    group by 1, 2
)
select name, array_agg((extract(epoch from minute - $2) / 60)::int) as minutes, array_agg(n) as counts
from named group by name order by name is null, sum(n) desc, name;

-- part: queue
c.queue;

-- part: nothing_more
;

-- part: type
t.type;

-- part: found_by_id
-- The index of due times, which alone is read above, does not know the type.
cross join lateral (select type from tasks t where t.id = c.id limit 1) as t;

-- name: load_by_queue
{load queue nothing_more};

-- name: load_by_type
{load type found_by_id};
