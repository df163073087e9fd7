-- Jobs that act on all tasks that a filter finds.

-- part: job
j.id, j.action, j.filter, j.due, j.rate, j.status, j.total, j.exact, j.done, j.refused, j.place,
j.created_by, j.created_at, j.updated_at, j.finished_at, j.error, j.epoch;

-- name: bulk_add
-- And forget those that ended before $9.
with old as (
    delete from bulk_jobs where finished_at < $9
)
insert into bulk_jobs as j (id, action, filter, due, rate, total, exact, created_by, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $10, $10)
returning {job};

-- name: bulk_get
select {job} from bulk_jobs j where j.id = $1;

-- name: bulk_list
-- Newest first; ($1, $2) is the place of the last one of the page before.
select {job} from bulk_jobs j
where $1::timestamptz is null or (j.created_at, j.id) < ($1, $2::uuid)
order by j.created_at desc, j.id desc limit $3;

-- name: bulk_stop
update bulk_jobs j set status = 'stopping', updated_at = $2
where j.id = $1 and j.status = 'running'
returning {job};

-- name: bulk_take
-- The oldest open job that nobody else works on: none of whose owner has been heard since $2.
with free as (
    select id from bulk_jobs
    where finished_at is null and (owner is null or owner = $1 or updated_at < $2)
    order by created_at, id limit 1 for update skip locked
)
update bulk_jobs j set owner = $1, epoch = j.epoch + 1, updated_at = $3
from free where j.id = free.id
returning {job};

-- name: bulk_record
-- How far the job has come, while it is still ours. $7: what it ends as, if it does.
update bulk_jobs j set
    place = $3, done = done + $4::int, refused = refused + $5::int, updated_at = $6,
    status = coalesce($7::text, status), error = $8::text,
    finished_at = case when $7::text is not null then $6::timestamptz end,
    owner = case when not $9::boolean then owner end
where j.id = $1 and j.epoch = $2 and j.finished_at is null
returning j.status;
