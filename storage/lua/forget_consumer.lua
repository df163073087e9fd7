-- Remove a consumer that is gone, if nothing is pending there: XGROUP DELCONSUMER would lose it.
-- KEYS[1] stream, ARGV[1] group, ARGV[2] consumer

local consumers = redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
for _, consumer in ipairs(consumers) do
  local facts = {}
  for at = 1, #consumer, 2 do facts[consumer[at]] = consumer[at + 1] end
  if facts.name == ARGV[2] and facts.pending == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  end
end
return 0
