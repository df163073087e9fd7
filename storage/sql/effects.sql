-- The guard of side effects, in the database of whoever uses it (not in the store). A row says that
-- the effect of this occurrence has been applied: both are committed together, or neither.
-- Values come and go as text, so that codecs which the connection's owner has set do not matter.

-- name: effects_table_exists
select to_regclass('duly_effects') is not null;

-- name: effects_lock
-- "if not exists" alone fails when two transactions create the table at the same time.
select pg_advisory_xact_lock(hashtext('duly_effects'));

-- name: effects_create_table
create table if not exists duly_effects (
    task_id    uuid        not null,
    occurrence timestamptz not null,
    token      bigint      not null,
    result     jsonb,
    created_at timestamptz not null default clock_timestamp(),
    primary key (task_id, occurrence)
);

-- name: effects_create_index
create index if not exists duly_effects_created_at on duly_effects using brin (created_at);

-- name: effect_claim
-- Waits for a transaction that holds the same key, until that has committed or rolled back.
insert into duly_effects (task_id, occurrence, token)
select $1::text::uuid, $2::text::timestamptz, $3::bigint
where not exists (
    select from duly_effects
    where task_id = $1::text::uuid and occurrence > $2::text::timestamptz and token > $3::bigint
)
on conflict (task_id, occurrence) do nothing
returning token;

-- name: effect_found
-- What stood in the way of a claim: this occurrence's effect, or a later one's of a higher token.
select token, result::text
from duly_effects
where task_id = $1::text::uuid
  and (occurrence = $2::text::timestamptz
       or (occurrence > $2::text::timestamptz and token > $3::bigint))
order by token desc limit 1;

-- name: effect_result
update duly_effects set result = $3::text::jsonb
where task_id = $1::text::uuid and occurrence = $2::text::timestamptz;
