-- A task was cancelled: put a higher token in its place, so that neither a worker that has yet to
-- begin it nor a publisher that is late starts it. Takes its entry out if no worker has it.
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, ARGV[2] id, ARGV[3] the higher token.  Answers the consumer that has it, or ''.

local tasks, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local id, token = ARGV[2], ARGV[3]
local known = redis.call('HGET', inflight, id)
if known and tonumber(known) >= tonumber(token) then return '' end
redis.call('HSET', inflight, id, token)
local entry = redis.call('HGET', entries, id)
if not entry then return '' end
redis.call('HDEL', entries, id)
local held = redis.pcall('XPENDING', tasks, group, entry, entry, 1)
if held.err or #held == 0 then
  redis.call('XDEL', tasks, entry)
  return ''
end
return held[1][2]
