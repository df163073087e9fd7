-- Where are these dispatched tasks of one queue?
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, then two words a task: id, token
-- Answers for each {entry id, consumer, ms since it was delivered}: entry '' = not in the stream,
-- consumer '' = in the stream, not delivered yet.

local tasks, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local found = {}
for at = 2, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local place = {'', '', 0}
  local entry = redis.call('HGET', entries, id)
  if entry and redis.call('HGET', inflight, id) == token
      and #redis.call('XRANGE', tasks, entry, entry) > 0 then
    place[1] = entry
    local held = redis.pcall('XPENDING', tasks, group, entry, entry, 1)
    if not held.err and #held > 0 then
      place[2], place[3] = held[1][2], held[1][3]
    end
  end
  found[#found + 1] = place
end
return found
