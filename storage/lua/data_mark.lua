-- Which run of the server this is, and the sentinel that is gone when its data are.
--
-- KEYS[1] the sentinel
-- Answers {run id, sentinel or nil}. Fails where no writes are taken: then nobody can show life.

redis.call('PERSIST', KEYS[1]) -- a write, and needs no memory
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {run, redis.call('GET', KEYS[1])}
