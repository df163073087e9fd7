-- Publish claimed tasks of one queue. A lower token never replaces a higher one, and an entry that
-- is in the stream already is not added again: so publishing twice is harmless.
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, then nine words a task: id, token, type, payload, due, attempt, timeout, queue, confirm
-- Answers {added, entries in the stream, of them delivered (-1 = the group is gone)}.

local tasks, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local added = 0
for at = 2, #ARGV, 9 do
  local id, token = ARGV[at], ARGV[at + 1]
  local known = redis.call('HGET', inflight, id)
  local skip = false
  if known then
    if known == token then
      local entry = redis.call('HGET', entries, id)
      skip = entry and #redis.call('XRANGE', tasks, entry, entry) > 0
    else
      skip = tonumber(known) > tonumber(token)
    end
  end
  if not skip then
    local entry = redis.call('XADD', tasks, '*',
      'id', id, 'token', token, 'type', ARGV[at + 2], 'payload', ARGV[at + 3], 'due', ARGV[at + 4],
      'attempt', ARGV[at + 5], 'timeout', ARGV[at + 6], 'queue', ARGV[at + 7], 'confirm', ARGV[at + 8])
    redis.call('HSET', inflight, id, token)
    redis.call('HSET', entries, id, entry)
    added = added + 1
  end
end
local pending = redis.pcall('XPENDING', tasks, group)
local delivered = -1
if not pending.err then delivered = pending[1] end
return {added, redis.call('XLEN', tasks), delivered}
