-- Register a node, or renew its registration, and answer who is alive.
--
-- KEYS[1] last beats (sorted set, Redis's own clock)   KEYS[2] beats so far (hash)
-- KEYS[3] what each node says of itself (hash)   KEYS[4] when those that are gone last beat (sorted set)
-- ARGV[1] node id, ARGV[2] its words, ARGV[3] TTL in ms, ARGV[4] how often it has beaten
-- Answers for each live node {id, how often it has beaten, its words}.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now - ARGV[3]))) do
  redis.call('ZADD', KEYS[4], redis.call('ZSCORE', KEYS[1], gone), gone)
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -1001)
  redis.call('ZREM', KEYS[1], gone)
  redis.call('HDEL', KEYS[2], gone)
  redis.call('HDEL', KEYS[3], gone)
end
local live = {}
for at, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local beats, words = redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[3], id)
  live[at] = {id, tonumber(beats or 0), words or ''}
end
return live
