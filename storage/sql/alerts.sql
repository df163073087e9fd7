-- Alerts over watched schedules. $now is the cluster's clock.

-- name: alert_outlook
-- Whether a round has anything to do: a schedule is silent for too long, an alert is open, or one is news.
-- The least, from its index: whether one exists is looked up in the whole table if PostgreSQL expects many.
select coalesce((select min(silent_at) from tasks where silent_at is not null) <= $1, false) as silent,
       exists (select from alerts where cleared_at is null) as open,
       exists (select from alerts where news) as news;

-- name: raise_silent
-- Tasks that should have completed an occurrence by now. One node raises each: the others skip the row
-- or, having waited for it, find no time in it any more.
with due as materialized (
    select id from tasks where silent_at <= $1 and slot in (select slot from slots)
    order by silent_at limit $2 for update skip locked
), silent as (
    update tasks t set silent_at = null where t.id = any(array(select id from due))
    returning t.id, t.type, t.queue, t.schedule, t.paused, t.status, t.next_run_at, t.failed_in_row,
              t.created_at
)
insert into alerts (kind, task_id, type, queue, since, raised_at, tell_at, details)
select 'silent', s.id, s.type, s.queue,
       coalesce(l.recorded_at, duly_silent_at(s.schedule, s.created_at)
                               - (s.schedule ->> 'expect_within')::float8 * interval '1 second'),
       $1, $1,
       jsonb_build_object('expect_within', s.schedule -> 'expect_within', 'paused', s.paused,
                          'status', s.status, 'next_run_at', s.next_run_at,
                          'failed_in_row', s.failed_in_row)
from silent s left join lateral (
    select r.recorded_at from runs r where r.task_id = s.id and r.outcome = 'completed'
    order by r.token desc, r.recorded_at desc limit 1
) l on true
on conflict (task_id, kind) where cleared_at is null do nothing
returning id;

-- name: clear_alerts
-- What is over: the task was heard of again, goes on, is watched no more, or has ended.
update alerts a set cleared_at = $1, news = true, tell_at = $1, tries = 0
where a.cleared_at is null and not exists (
    select from tasks t where t.id = a.task_id
      and case a.kind when 'silent' then t.silent_at is null and t.schedule ? 'expect_within'
                      else t.paused end)
returning id;

-- name: alert_news
-- Raised or cleared since any node has looked; each is answered to one node.
update alerts a set news = false
from (select id from alerts where news order by id limit $1 for update skip locked) n
where a.id = n.id
returning a.id, a.kind, a.task_id, a.type, a.queue, a.since, a.raised_at, a.cleared_at, a.details;

-- name: alerts_to_tell
-- What this node is to tell the webhook now; another may from $2 on, if nobody says that it knows.
-- What is older than $3 is news to nobody.
update alerts a set tell_at = $2::timestamptz + least(a.tries, 60) * interval '1 minute',
                    tries = a.tries + 1
from (
    select id from alerts where tell_at <= $1 and coalesce(cleared_at, raised_at) > $3
    order by tell_at limit $4 for update skip locked
) n
where a.id = n.id
returning a.id, a.kind, a.task_id, a.type, a.queue, a.since, a.raised_at, a.cleared_at, a.details;

-- name: alert_told
-- Unless it has been cleared meanwhile, which is to be told too.
update alerts set tell_at = null
where id = $1 and cleared_at is not distinct from $2::timestamptz
returning id;

-- name: alerts
-- Newest first; $3 is the id of the last one of the page before.
select id, kind, task_id, type, queue, since, raised_at, cleared_at, details from alerts
where ($1::boolean is null or (cleared_at is null) = $1) and ($2::uuid is null or task_id = $2)
  and ($3::bigint is null or id < $3)
order by id desc limit $4;

-- name: open_alerts
select kind, count(*) as count from alerts where cleared_at is null group by kind;

-- name: forget_alerts
-- Of those that were cleared before $1, some thousands.
delete from alerts where id in (
    select id from alerts where cleared_at < $1 order by id limit 5000 for update skip locked)
returning id;
