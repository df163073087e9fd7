-- The figures of many minutes.
--
-- KEYS the minutes' hashes
-- Answers for each of them a list: node, figures, node, figures, …

local found = {}
for at = 1, #KEYS do
  found[at] = redis.call('HGETALL', KEYS[at])
end
return found
