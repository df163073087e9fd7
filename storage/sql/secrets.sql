-- What the nodes share.

-- name: secret
select value from secrets where name = $1;
