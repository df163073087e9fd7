-- Report outcomes of one queue and give back their stream entries, in one step.
--
-- KEYS[1]  tasks stream       KEYS[2]  reports stream
-- ARGV[1]  consumer group, then for each item: entry id, number of words n, n words (field, value, …).
-- n = 0 drops the entry without a report (superseded, cancelled).
--
-- A report is added even when its entry is gone (XACK answers 0). That happens when an answer was
-- lost and this is the second send, which the token makes harmless, but also when Redis lost its
-- data or failed over, and then this is the only copy of the outcome.
-- XADD comes first: if it is refused (OOM), nothing of its item has happened. What comes after must
-- not fail (there may be no stream any more, but another type): the report would be added again.

local tasks, reports, group = KEYS[1], KEYS[2], ARGV[1]
local at = 2
while at <= #ARGV do
  local entry, words = ARGV[at], tonumber(ARGV[at + 1])
  if words > 0 then
    redis.call('XADD', reports, '*', unpack(ARGV, at + 2, at + 1 + words))
  end
  redis.pcall('XACK', tasks, group, entry)
  redis.pcall('XDEL', tasks, entry)
  at = at + 2 + words
end
return redis.status_reply('OK')
