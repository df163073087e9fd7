-- Clean up after recorded outcomes of one queue: the entry that told of it (a report, or the task
-- entry of a lost worker), and what is kept of the task, unless a newer token has taken its place.
--
-- An entry '' in the tasks stream is looked up. KEYS[1] stream of the entries   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, then three words each: entry id, task id, token

local stream, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
for at = 2, #ARGV, 3 do
  local entry, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local ours = redis.call('HGET', inflight, id) == token
  if entry == '' and ours then entry = redis.call('HGET', entries, id) or '' end
  if entry ~= '' then
    redis.pcall('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  end
  if ours then
    redis.call('HDEL', inflight, id)
    redis.call('HDEL', entries, id)
  end
end
return redis.status_reply('OK')
