-- What operators have set of queues.

-- name: queue_controls
select queue, paused, paused_by, paused_at, rate, burst, max_in_flight, updated_at, updated_by
from queues;

-- name: control_queue
-- Null leaves `paused` as it is; of the others those whose flag is set change, also to null. Pausing a
-- paused queue does not change who paused it, and when.
insert into queues as q (queue, paused, paused_by, paused_at, rate, burst, max_in_flight, updated_at,
                         updated_by)
values ($1, coalesce($2, false), case when $2 then $10::text end, case when $2 then $9::timestamptz end,
        $4, $6, $8, $9, $10)
on conflict (queue) do update set
    paused = coalesce($2::boolean, q.paused),
    paused_by = case when $2 is null or $2 and q.paused then q.paused_by when $2 then $10 end,
    paused_at = case when $2 is null or $2 and q.paused then q.paused_at when $2 then $9 end,
    rate = case when $3::boolean then $4::double precision else q.rate end,
    burst = case when $5::boolean then $6::integer else q.burst end,
    max_in_flight = case when $7::boolean then $8::integer else q.max_in_flight end,
    -- It tells which of two changes is the newer one, whatever the clocks of those who made them.
    updated_at = greatest($9, q.updated_at + interval '1 microsecond'), updated_by = $10
returning queue, paused, paused_by, paused_at, rate, burst, max_in_flight, updated_at, updated_by;

-- name: copy_controls
insert into queues as q (queue, paused, paused_by, paused_at, rate, burst, max_in_flight, updated_at,
                         updated_by)
select * from unnest($1::text[], $2::boolean[], $3::text[], $4::timestamptz[], $5::float8[], $6::int[],
                     $7::int[], $8::timestamptz[], $9::text[])
on conflict (queue) do update set
    paused = excluded.paused, paused_by = excluded.paused_by, paused_at = excluded.paused_at,
    rate = excluded.rate, burst = excluded.burst, max_in_flight = excluded.max_in_flight,
    updated_at = excluded.updated_at, updated_by = excluded.updated_by;
