-- Report outcomes of one queue and give back their stream entries, in one step.
--
-- KEYS[1]  tasks stream       KEYS[2]  reports stream
-- ARGV[1]  consumer group     ARGV[2]  MessagePack: for each of at most 5,000 items the list of its entry id and
-- its report's words (field, value, …). No words drop the entry without a report (superseded, cancelled).
--
-- A report is added even when its entry is gone (XACK answers 0). That happens when an answer was
-- lost and this is the second send, which the token makes harmless, but also when Redis lost its
-- data or failed over, and then this is the only copy of the outcome.
-- XADD comes first: if it is refused (OOM), it is the first one, and nothing has happened. What comes after
-- must not fail (there may be no stream any more, but another type): the reports would be added again.

local tasks, reports, group = KEYS[1], KEYS[2], ARGV[1]
local entries = {}
for at, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  entries[at] = item[1]
  if #item > 1 then redis.call('XADD', reports, '*', unpack(item, 2)) end
end
redis.pcall('XACK', tasks, group, unpack(entries))
redis.pcall('XDEL', tasks, unpack(entries))
return redis.status_reply('OK')
