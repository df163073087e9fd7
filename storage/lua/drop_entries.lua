-- Forget where the entries of tasks were of which nothing is in flight: what was in flight got lost meanwhile.
--
-- KEYS[1] inflight   KEYS[2] entries   ARGV task ids

for _, id in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], id) == 0 then redis.call('HDEL', KEYS[2], id) end
end
return redis.status_reply('OK')
