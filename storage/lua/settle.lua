-- Clean up after recorded outcomes of one queue: the entry that told of it (a report, or the task
-- entry of a lost worker; '' = none), and what is kept of the task, its own entry included, unless
-- a newer token has taken its place. A worker that did not delete its entry leaves nothing behind.
--
-- KEYS[1] stream of the entries   KEYS[2] inflight   KEYS[3] entries   KEYS[4] tasks stream
-- ARGV[1] group of KEYS[1], ARGV[2] group of KEYS[4], then three words each: entry id, task id, token

local stream, inflight, entries, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
for at = 3, #ARGV, 3 do
  local entry, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if entry ~= '' then
    redis.pcall('XACK', stream, ARGV[1], entry)
    redis.call('XDEL', stream, entry)
  end
  if redis.call('HGET', inflight, id) == token then
    local own = redis.call('HGET', entries, id)
    if own then
      redis.pcall('XACK', tasks, ARGV[2], own)
      redis.pcall('XDEL', tasks, own)
    end
    redis.call('HDEL', inflight, id)
    redis.call('HDEL', entries, id)
  end
end
return redis.status_reply('OK')
