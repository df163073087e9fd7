-- What became of each occurrence, and which reports were refused.

-- name: verdicts
-- The verdicts since $1 and before the place ($2, $3, $4), newest first: those that fit the filter,
-- at most $8, among the newest 10,000. The last of so many is answered whether it fits or not, so
-- that the next page can go on from there. (A constant, so that the planner counts on few.)
select v.task_id, v.type, v.queue, v.occurrence, v.verdict, v.outcome, v.token, v.attempt, v.worker,
       v.started_at, v.finished_at, v.recorded_at, v.error, 1 as times, v.fits, v.number = 10000 as is_last
from (
    select w.*, row_number() over () as number,
           ($5::text is null or w.type = $5) and ($6::text is null or w.queue = $6)
           and ($7::text is null or w.verdict = $7) as fits
    from (
        select * from runs
        where verdict is not null and recorded_at >= $1 and recorded_at <= $2
          and (recorded_at, task_id, token) < ($2, $3::uuid, $4::bigint)
        order by recorded_at desc, task_id desc, token desc limit 10000
    ) w
) v where v.fits or v.number = 10000 limit $8;

-- name: verdicts_not_completed
-- The same of one verdict ($7) that few have; of those that were skipped, for one reason ($8).
select v.task_id, v.type, v.queue, v.occurrence, v.verdict, v.outcome, v.token, v.attempt, v.worker,
       v.started_at, v.finished_at, v.recorded_at, v.error, 1 as times, v.fits, v.number = 10000 as is_last
from (
    select w.*, row_number() over () as number,
           ($5::text is null or w.type = $5) and ($6::text is null or w.queue = $6)
           and ($8::text is null or $8 = coalesce(w.error ->> 'type', w.error #>> '{}')) as fits
    from (
        select * from runs
        where verdict = $7::text and verdict in ('failed', 'cancelled', 'skipped')
          and recorded_at >= $1 and recorded_at <= $2
          and (recorded_at, task_id, token) < ($2, $3::uuid, $4::bigint)
        order by recorded_at desc, task_id desc, token desc limit 10000
    ) w
) v where v.fits or v.number = 10000 limit $9;

-- name: rejected
-- The same of the reports that were refused. (Those of one batch are a microsecond apart.)
select v.task_id, v.type, v.queue, v.occurrence, 'rejected' as verdict, v.outcome, v.token,
       null::int as attempt, nullif(v.worker, '') as worker, v.started_at, v.finished_at,
       v.received_at as recorded_at, v.error, v.times, v.fits, v.number = 10000 as is_last
from (
    select w.*, row_number() over () as number,
           ($5::text is null or w.type = $5) and ($6::text is null or w.queue = $6) as fits
    from (
        select * from rejected_reports
        where received_at >= $1 and received_at <= $2
          and (received_at, task_id, token) < ($2, $3::uuid, $4::bigint)
        order by received_at desc, task_id desc, token desc, outcome, worker limit 10000
    ) w
) v where v.fits or v.number = 10000 limit $7;

-- name: task_verdicts
-- Of one task, the newest first; ($2, $3) is the place of the last one of the page before. Of a row
-- from before there were verdicts: an attempt that was not the last of its occurrence was none.
select r.task_id, r.token, r.occurrence, r.attempt, r.outcome, r.worker, r.started_at, r.finished_at,
       r.recorded_at, r.error, r.result,
       coalesce(r.verdict, case when r.outcome in ('lost', 'timed_out') then 'failed' else r.outcome end)
           as verdict
from runs r
where r.task_id = $1 and ($2::bigint is null or (r.token, r.recorded_at) < ($2, $3::timestamptz))
  and (r.verdict is not null
       or case when r.type is not null then false
               when r.outcome in ('completed', 'cancelled', 'skipped') then true
               else coalesce(
                   (select l.occurrence from runs l
                    where l.task_id = r.task_id and l.token > r.token and l.outcome <> 'skipped'
                    order by l.token limit 1),
                   (select t.occurrence from tasks t where t.id = r.task_id)
               ) is distinct from r.occurrence end)
order by r.token desc, r.recorded_at desc limit $4;

-- name: occurrence_attempts
-- The newest 100 attempts of each of these occurrences of a task, under its last token or one before.
-- They come after every attempt of an earlier occurrence.
select a.task_id, a.token, a.occurrence, a.attempt, a.outcome, a.worker, a.started_at, a.finished_at,
       a.recorded_at, a.error, a.result
from unnest($2::timestamptz[], $3::bigint[]) as o (occurrence, token)
cross join lateral (
    select * from runs r
    where r.task_id = $1 and r.token <= o.token and r.occurrence = o.occurrence
      and r.outcome <> 'skipped' and r.finished_at is not null
      and r.token > coalesce(
          (select b.token from runs b
           where b.task_id = $1 and b.token < o.token and b.occurrence < o.occurrence
             and b.outcome <> 'skipped'
           order by b.token desc limit 1), -1)
    order by r.token desc, r.recorded_at desc limit 100
) a;

-- name: occurrence_rejected
-- The newest reports that were refused, of these occurrences of a task.
select token, outcome, nullif(worker, '') as worker, received_at, error, occurrence, times
from rejected_reports where task_id = $1 and occurrence = any($2::timestamptz[])
order by received_at desc limit 1000;

-- name: reject
-- Keep reports that were refused, of tasks that exist. A repeat of what is kept adds to its count. What is
-- recorded of this very worker under this token is no stale attempt: the report came twice. Beyond 100
-- of a task and day they are only counted, in one row (`more`, token 0).
with said as materialized (
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[],
                         $6::timestamptz[], $7::jsonb[], $8::bigint[])
        with ordinality as s (id, token, outcome, worker, began, ended, error, times, place)
), stale as materialized (
    select s.*, k.type, k.queue, k.occurrence as present,
           (select count(*) from (
                select from rejected_reports c where c.task_id = s.id and c.day = $9 limit 100
            ) c) < 100
           or exists (
                select from rejected_reports c
                where c.task_id = s.id and c.day = $9 and c.token = s.token
                  and c.outcome = s.outcome and c.worker = s.worker) as kept
    from said s
    join lateral (
        select type, queue, status, version, occurrence from tasks where id = s.id
        union all
        select type, queue, status, version, occurrence from finished_tasks where id = s.id
        limit 1
    ) k on true
    where not exists (
        select from runs r where r.task_id = s.id and r.token = s.token and r.outcome = s.outcome
          and coalesce(r.worker, '') = s.worker
    ) and not (s.outcome = 'snoozed' and k.version = s.token and k.status = 'pending')
), placed as (
    select id, case when kept then token else 0 end as token,
           case when kept then outcome else 'more' end as outcome,
           case when kept then worker else '' end as worker, type, queue, present, place, times,
           case when kept then began end as began, case when kept then ended end as ended,
           case when kept then error end as error
    from stale
)
insert into rejected_reports as r (task_id, token, outcome, worker, day, received_at, type, queue,
                                   occurrence, started_at, finished_at, error, times)
select p.id, p.token, p.outcome, p.worker, $9::timestamptz,
       $10::timestamptz + min(p.place) * interval '1 microsecond', min(p.type), min(p.queue),
       coalesce(case when p.outcome <> 'more' then (
                    select a.occurrence from runs a
                    where a.task_id = p.id and a.token >= p.token and a.outcome <> 'skipped'
                    order by a.token limit 1) end, min(p.present)),
       min(p.began), min(p.ended), (array_agg(p.error))[1], sum(p.times)
from placed p
group by p.id, p.token, p.outcome, p.worker
order by p.id, p.token, p.outcome, p.worker
on conflict (task_id, day, token, outcome, worker) do update set times = r.times + excluded.times
returning task_id, token, outcome, times;
