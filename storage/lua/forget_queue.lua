-- Remove what is kept of a queue, if that is nothing but empty keys and a group that no worker uses.
--
-- KEYS[1] tasks stream   KEYS[2] reports stream   KEYS[3] inflight   KEYS[4] entries
-- ARGV[1] workers' group, ARGV[2] beginning of the names of consumers that are no workers
-- Answers 1 if nothing is left, 0 if the queue is in use.

if redis.call('XLEN', KEYS[1]) + redis.call('XLEN', KEYS[2])
    + redis.call('HLEN', KEYS[3]) + redis.call('HLEN', KEYS[4]) > 0 then
  return 0
end
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if not consumers.err then
  for _, consumer in ipairs(consumers) do
    for at = 1, #consumer, 2 do
      if consumer[at] == 'name' and string.sub(consumer[at + 1], 1, #ARGV[2]) ~= ARGV[2] then
        return 0
      end
    end
  end
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
