-- What people ask of one queue, and perhaps of one task in it. Changes nothing.
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, ARGV[2] task id ('' = none), ARGV[3] its token
-- Answers {entries in the stream, of them delivered, consumers as XINFO has them,
-- the task's entry ('' = not in the stream), its consumer ('' = not delivered), ms since delivery}.

local tasks, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local id, token = ARGV[2], ARGV[3]

local length = redis.call('XLEN', tasks)  -- raises if it is no stream; below only the group may be missing
local pending = redis.pcall('XPENDING', tasks, group)
local consumers = redis.pcall('XINFO', 'CONSUMERS', tasks, group)
local entry, consumer, idle_ms = '', '', 0
if id ~= '' and redis.call('HGET', inflight, id) == token then
  local found = redis.call('HGET', entries, id)
  if found and #redis.call('XRANGE', tasks, found, found) > 0 then
    entry = found
    local held = redis.pcall('XPENDING', tasks, group, found, found, 1)
    if not held.err and #held > 0 then consumer, idle_ms = held[1][2], held[1][3] end
  end
end
if consumers.err then consumers = {} end
return {length, pending.err and 0 or pending[1], consumers, entry, consumer, idle_ms}
