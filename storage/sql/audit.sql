-- Who changed what.

-- name: note
insert into audit (at, who, role, action, task_id, details)
values ($1, $2, $3, $4, $5, $6::jsonb)
returning id;

-- name: notes
-- Newest first; ($6, $7) is the place of the last one of the page before.
select at, id, who, role, action, task_id, details from audit
where ($1::text is null or who = $1) and ($2::text is null or action = $2)
  and ($3::uuid is null or task_id = $3)
  and ($4::timestamptz is null or at < $4) and ($5::timestamptz is null or at >= $5)
  and ($6::timestamptz is null or (at, id) < ($6, $7::bigint))
order by at desc, id desc limit $8;
