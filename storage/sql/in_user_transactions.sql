-- What users do within their own transactions, and what nodes do for it.

-- name: say_limits
-- What a submission in SQL has to know of the settings of nodes.
update submission_limits set payload_bytes = $1, idempotency_ttl_s = $2, region = $3
where (payload_bytes, idempotency_ttl_s, region) is distinct from ($1::integer, $2::double precision, $3::text);

-- name: still_writes
-- Whether this session would still hear: the other end is there, and takes writes.
select not pg_is_in_recovery();

-- name: submit_in
-- Values come and go as text, so that codecs which the connection's owner has set do not matter.
select duly.submit($1::text, $2::text::jsonb, $3::text::timestamptz, $4::text::jsonb)::text;

-- name: complete_in
select duly.complete($1::text::uuid, $2::text::bigint, $3::text::jsonb, $4::text);
