-- Tasks of other regions: kept here until they are there, and where they went. $now is the cluster's clock.

-- part: forwarded_columns f
{f}.id, {f}.seq, {f}.region, {f}.state, {f}.sent, {f}.accepted_at, {f}.updated_at, {f}.body, {f}.key,
{f}.fingerprint, {f}.traceparent, {f}.who, {f}.task_id, {f}.problem, {f}.slot;

-- name: keep_forwarded
-- Those whose names are free. An id may be taken by a task of this region, too.
insert into forwarded (id, region, accepted_at, updated_at, body, key, fingerprint, traceparent, who)
select a.id, a.region, a.accepted_at, a.accepted_at, a.body, a.key, a.fingerprint, a.traceparent, a.who
from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bytea[], $5::text[], $6::bytea[], $7::text[],
            $8::text[])
    with ordinality as a (id, region, accepted_at, body, key, fingerprint, traceparent, who, place)
where not exists (select from tasks t where t.id = a.id)
  and not exists (select from finished_tasks t where t.id = a.id)
order by a.place
on conflict do nothing
returning id;

-- name: forwarded_like
-- What has the names that were not free.
select {forwarded_columns f}
from forwarded f
where f.id = any($1::uuid[])
   or (f.state = 'waiting' and (f.region, f.key) in (
           select a.region, a.key from unnest($2::text[], $3::text[]) as a (region, key)));

-- name: forwarded
select {forwarded_columns f}, t.failing_since, t.error
from forwarded f left join region_turns t on t.region = f.region
where f.id = $1;

-- name: take_forwarded
-- For the one node that has the turn (until $4): what a region ($1) is to be handed next, up to $5 tasks of
-- $6 bytes. Marked before it is sent, so that a cancel knows that it may come too late; answers whether it was
-- marked already.
with turn as (
    insert into region_turns as r (region, holder, until) values ($1, $2, $4::timestamptz)
    on conflict (region) do update set holder = excluded.holder, until = excluded.until
    where r.until <= $3 or r.holder = excluded.holder
    returning r.region
), next as (
    select id, sent, sum(length(body)) over (order by seq) as bytes, row_number() over (order by seq) as place
    from (select id, seq, body, sent from forwarded where region = $1 and state = 'waiting'
          order by seq limit $5) w
), marked as (
    update forwarded f set sent = true
    from next n
    where f.id = n.id and f.state = 'waiting' and exists (select from turn)
      and (n.bytes <= $6::bigint or n.place = 1)
    returning f.*, n.sent as was_sent
)
select exists (select from turn) as mine, m.was_sent, {forwarded_columns m}
from (values (1)) as one left join marked m on true
order by m.seq;

-- name: unsend_forwarded
-- These surely did not arrive. If another node has the turn ($2, $3) by now, it may have sent them, too.
with turn as materialized (
    select region from region_turns where region = $2 and holder = $3 for update
)
update forwarded set sent = false
where id = any($1::uuid[]) and state = 'waiting' and exists (select from turn)
returning id;

-- name: settle_forwarded
-- What became of them there.
update forwarded f
set state = a.state, sent = true, task_id = a.task_id, problem = a.problem, keep_until = a.keep_until,
    updated_at = $6, body = case when a.state = 'refused' then f.body end
from unnest($1::uuid[], $2::text[], $3::uuid[], $4::jsonb[], $5::timestamptz[])
    as a (id, state, task_id, problem, keep_until)
where f.id = a.id and f.state = 'waiting'
returning f.id;

-- name: end_turn
-- Of a region ($1); $4 is what failed, if it did: then the turn stays ours until $3.
update region_turns
set until = $3::timestamptz, error = $4::text,
    failing_since = case when $4 is not null then coalesce(failing_since, $5::timestamptz) end
where region = $1 and holder = $2
returning region;

-- name: cancel_forwarded
-- Unless it may have arrived.
update forwarded set state = 'cancelled', updated_at = $2, keep_until = $3::timestamptz
where id = $1 and state = 'waiting' and not sent
returning id;

-- name: retry_forwarded
-- What was refused is to be handed on once more, after all that waits.
update forwarded f
set state = 'waiting', seq = default, sent = false, problem = null, keep_until = null, updated_at = $2
where f.id = $1 and f.state = 'refused'
  and not exists (select from forwarded o
                  where o.region = f.region and o.key = f.key and o.state = 'waiting')
returning f.id;

-- name: drop_refused
-- Its client was told, instead of 2xx.
delete from forwarded where id = $1 and state = 'refused' returning id;

-- name: outbox_heads
-- What each region waits for the longest, and whether handing it on fails.
with recursive regions as (
    (select region from forwarded where state = 'waiting' order by region limit 1)
    union all
    select (select f.region from forwarded f where f.state = 'waiting' and f.region > r.region
            order by f.region limit 1)
    from regions r where r.region is not null
)
select r.region, h.accepted_at, t.failing_since, t.error
from regions r
join lateral (select accepted_at from forwarded f where f.region = r.region and f.state = 'waiting'
              order by f.seq limit 1) h on true
left join region_turns t on t.region = r.region;

-- name: outbox_depths
-- Up to $1 of each kind.
select region, 'waiting' as state, least(count(*), $1::bigint) as count
from (select region from forwarded where state = 'waiting' limit $1) w group by region
union all
select region, 'refused', least(count(*), $1) from (
    select region from forwarded where state = 'refused' limit $1) r
group by region;

-- name: outbox
-- What waits or was refused, in the order of its submission; $3 is the last one of the page before.
select {forwarded_columns f}
from forwarded f
where f.state = $2 and f.region = $1 and f.seq > $3
order by f.seq limit $4;

-- name: forget_forwarded
delete from forwarded where id in (
    select id from forwarded where keep_until <= $1 order by keep_until limit 5000
    for update skip locked)
returning id;
