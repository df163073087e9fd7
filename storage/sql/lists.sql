-- Pages of tasks, newest first by id, of a store of any size.
--
-- A page comes from streams: ranges of an index in the order of id, each of which is read up to a budget
-- of rows. When it ends there, `bound` is the last id that was looked at: from it on down nothing is
-- known yet. Or it comes from a set: what one index finds, in any order, unless that is too much: then
-- nothing is known. Which of them, storage/listing.py decides by the filter. $1 and $2 are the highest
-- and the least id, $3 how many, $4 to $12 the filter, $13 whether payloads and results are wanted. A constant limit is what keeps the planner on the
-- index, also where it does not know the parameters.

-- part: task_row
{columns t wanted_payload its_next_run_at no_time no_json its_waits};

-- part: finished_row
{columns t wanted_payload no_time its_finished_at wanted_result no_ids};

-- part: wanted_payload t
case when $13::boolean then {t}.payload else 'null' end;

-- part: wanted_result t
case when $13::boolean then {t}.result end;

-- part: asked
($4::text is null or c.status = $4) and ($5::text is null or c.type = $5)
and ($6::text is null or c.queue = $6) and ($7::jsonb is null or c.tags @> $7)
and ($10::boolean is null or (c.schedule is not null) = $10)
and ($12::text is null or c.name = $12);

-- part: task_asked
{asked}
and ($8::timestamptz is null or c.next_run_at < $8) and ($9::timestamptz is null or c.next_run_at >= $9)
and ($11::boolean is null or c.paused = $11);

-- part: finished_asked
{asked} and $8::timestamptz is null and $9::timestamptz is null and $11::boolean is not true;

-- part: page table row asked stream key
-- A stream of which too little was asked to find $3 is known down to the last id that was read.
with stream as materialized (
    {stream}
), found as materialized (
    select s.*, array(
        select c.id from (
            select * from (
                select * from {table} c where {key} and c.id between $2 and $1
                order by c.id desc limit 10000
            ) c order by c.id desc limit s.budget
        ) c where {asked} order by c.id desc limit $3
    ) as ids from stream s
), bounded as materialized (
    select s.ids, case when s.budget = 0 then $1 when cardinality(s.ids) < $3 then (
        select c.id from (
            select c.id from {table} c where {key} and c.id between $2 and $1
            order by c.id desc limit 10000
        ) c order by c.id desc limit 1 offset s.budget - 1
    ) end as bound
    from found s
)
select (select bound from bounded order by bound desc nulls last limit 1) as bound, t.*
from (select) as one
left join (select unnest(ids) as id from bounded order by 1 desc limit $3) as picked on true
left join lateral (select {row} from {table} t where t.id = picked.id limit 1) as t on true
order by t.id desc;

-- part: everything
select 2500 as budget;

-- part: any
true;

-- part: periodic
c.schedule is not null;

-- part: paused
c.paused;

-- part: named
c.name = $12;

-- part: of_status
c.status = $4 and c.status <> 'completed';

-- part: waiting
-- To the letter: the index tasks_waiting_kind has only these, so that a claim need not write to it.
case c.status when 'pending' then true else false end;

-- part: one_pair
{waiting} and c.queue = $6 and c.type = $5;

-- part: some
select 2500 as budget;

-- part: shared
-- What a stream may read if the budget is shared out; 0 if they are too many.
case when count(*) over () <= least(1000, 100000 / $3::int) then greatest($3::int, 2500 / count(*) over ())
     else 0 end as budget;

-- part: types_of_queue table among
with recursive known as (
    (select c.type from {table} c where {among} and c.queue = $6 order by c.type limit 1)
    union all
    select (select c.type from {table} c where {among} and c.queue = $6 and c.type > known.type
            order by c.type limit 1)
    from known where known.type is not null
)
select $6::text as queue, type from known where type is not null limit 1001;

-- part: queues_of_type table among
with recursive known as (
    (select c.queue from {table} c where {among} order by c.queue limit 1)
    union all
    select (select c.queue from {table} c where {among} and c.queue > known.queue
            order by c.queue limit 1)
    from known where known.queue is not null
)
select queue, $5::text as type from known where queue is not null limit 1001;

-- part: asked_pair table among
select $6::text as queue, $5::text as type;

-- part: pairs which
select queue, type, {shared} from ({which tasks waiting}) as pair;

-- part: of_pair
c.queue = s.queue and c.type = s.type;

-- part: of_waiting
{waiting} and {of_pair};

-- part: outcomes which
select queue, type, status, {shared} from ({which finished_tasks any}) as pair cross join unnest(
    case when $4::text is null then '{completed,failed,cancelled}' else array[$4::text] end
) as status;

-- part: of_outcome
{of_pair} and c.status = s.status;

-- part: tasks_page stream key
{page tasks task_row task_asked stream key};

-- part: finished_page stream key
{page finished_tasks finished_row finished_asked stream key};

-- part: task_types
{pairs types_of_queue};

-- part: task_queues
{pairs queues_of_type};

-- part: finished_pair
{outcomes asked_pair};

-- part: finished_types
{outcomes types_of_queue};

-- part: finished_queues
{outcomes queues_of_type};

-- name: list_tasks
{tasks_page everything any};

-- name: list_tasks_of_pair
{tasks_page some one_pair};

-- name: list_tasks_of_queue
{tasks_page task_types of_waiting};

-- name: list_tasks_of_type
{tasks_page task_queues of_waiting};

-- name: list_tasks_periodic
{tasks_page some periodic};

-- name: list_tasks_paused
{tasks_page some paused};

-- name: list_tasks_named
{tasks_page some named};

-- name: list_finished
{finished_page everything any};

-- name: list_finished_of_pair
{finished_page finished_pair of_outcome};

-- name: list_finished_of_queue
{finished_page finished_types of_outcome};

-- name: list_finished_of_type
{finished_page finished_queues of_outcome};

-- name: list_finished_of_status
{finished_page some of_status};

-- name: list_finished_named
{finished_page some named};

-- name: list_finished_periodic
{finished_page some periodic};

-- part: set table row asked candidates limit_hit rows by unread
with candidate as materialized (
    {candidates}
), known as materialized (
    select {limit_hit} as gave_up from candidate
), picked as (
    select c.id from {rows}
    where c.id between $2 and $1 and not (select gave_up from known) and {asked}
    order by {by} desc limit $3
)
select case when known.gave_up then $1 else ({unread}) end as bound, t.*
from known left join picked on true
left join lateral (select {row} from {table} t where t.id = picked.id limit 1) as t on true
order by t.id desc;

-- part: as_found
candidate as c;

-- part: found
c.id;

-- part: nothing
null::uuid;

-- part: near
select id from candidate where is_due and id between $2 and $1;

-- part: looked_up
-- Only as far as it takes, and not all.
({near} order by id desc limit 1000) as k
    cross join lateral (select * from tasks c where c.id = k.id limit 1) as c;

-- part: not_looked_up
-- If those nearest were too few, more may be below.
{near} and (select count(*) from picked) < $3 order by id desc offset 999 limit 1;

-- part: key
k.id;

-- part: enough
-- What a filter asks for.
c.id, c.status, c.type, c.queue, c.tags, c.schedule, c.name;

-- part: too_many
count(*) >= 10000;

-- part: too_many_running
count(*) >= 30000;

-- part: too_many_tagged
count(*) >= 1000;

-- part: running
select {enough}, c.next_run_at, c.paused from tasks c where c.status = 'running' limit 30000;

-- part: tagged_tasks
select {enough}, c.next_run_at, c.paused from tasks c where c.tags @> $7 and c.tags <> '{}' limit 1000;

-- part: tagged_finished
select {enough} from finished_tasks c where c.tags @> $7 and c.tags <> '{}' limit 1000;

-- part: first_slot
0;

-- part: this_slot
s.slot;

-- part: is_due
c.next_run_at >= coalesce($9::timestamptz, '-infinity') and c.next_run_at < coalesce($8::timestamptz, 'infinity');

-- part: due_of_slot slot
select c.id from tasks c
where c.slot = {slot} and c.status = 'pending' and not c.paused and {is_due}
order by c.next_run_at limit 50;

-- part: due
-- Slots have about the same: if it is too much in the first one, the others are not looked at.
with first as materialized (
    select count(*) as of_slot from ({due_of_slot first_slot}) as c
)
select unnest(t.ids) as id, cardinality(t.ids) as of_slot, true as is_due
from generate_series(0, 255) as s (slot) cross join lateral (select array_agg(c.id) as ids from ({due_of_slot this_slot}) as c) as t
where (select of_slot from first) < 50
union all select null, of_slot, true from first where of_slot >= 50
union all (select c.id, 0, {is_due} from tasks c where c.status = 'running' limit 10000)
union all (
    select c.id, 0, {is_due} from tasks c where c.paused and c.status = 'pending' and $11::boolean is not false limit 10000
);

-- part: too_many_due
{too_many} or max(of_slot) >= 50;

-- name: list_tasks_running
{set tasks task_row task_asked running too_many_running as_found found nothing};

-- name: list_tasks_due
{set tasks task_row task_asked due too_many_due looked_up key not_looked_up};

-- name: list_tasks_tagged
{set tasks task_row task_asked tagged_tasks too_many_tagged as_found found nothing};

-- name: list_finished_tagged
{set finished_tasks finished_row finished_asked tagged_finished too_many_tagged as_found found nothing};

-- name: table_bytes
-- Of the table called $1 and its partitions, without what they keep elsewhere. Not what was last analysed: it may
-- never have been.
select coalesce(sum(pg_relation_size(oid)), 0)::bigint as bytes from pg_class
where relkind = 'r' and (oid = to_regclass($1) or oid in (
    select inhrelid from pg_inherits where inhparent = to_regclass($1)));

-- part: sample table asked
-- How many that were made by $3 fit, in $13 % of the pages.
select count(*) as found from {table} c tablesample system ($13::real)
where c.id between $2 and $1 and c.created_at <= $3 and {asked};

-- name: sample_tasks
{sample tasks task_asked};

-- name: sample_finished
{sample finished_tasks finished_asked};
