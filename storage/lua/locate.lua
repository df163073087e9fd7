-- Where are these dispatched tasks of one queue?
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries
-- ARGV[1] group, then two words a task: id, token
-- Answers for each {entry id, consumer, ms since it was delivered}: entry '' = not in the stream,
-- consumer '' = in the stream, not delivered yet.
-- An entry that was delivered and is nobody's (acked and not deleted, or its consumer was deleted
-- by hand) will not be delivered again: it is taken out, and counts as not in the stream.

local tasks, inflight, entries, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local last_ms, last_seq = 0, 0
local groups = redis.pcall('XINFO', 'GROUPS', tasks)
if not groups.err then
  for _, words in ipairs(groups) do
    local facts = {}
    for at = 1, #words, 2 do facts[words[at]] = words[at + 1] end
    if facts.name == group then
      local ms, seq = string.match(facts['last-delivered-id'], '(%d+)-(%d+)')
      last_ms, last_seq = tonumber(ms), tonumber(seq)
    end
  end
end

local function was_delivered(entry)
  local ms, seq = string.match(entry, '(%d+)-(%d+)')
  ms, seq = tonumber(ms), tonumber(seq)
  return ms < last_ms or (ms == last_ms and seq <= last_seq)
end

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
    elseif not held.err and was_delivered(entry) then
      redis.call('XDEL', tasks, entry)
      place[1] = ''
    end
  end
  found[#found + 1] = place
end
return found
