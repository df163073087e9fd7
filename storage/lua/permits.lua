-- Ask for permits of a queue that has a rate, and give back those that were not used.
--
-- GCRA, as a leaky bucket: every permit fills it by one, it leaks `rate` a second, and holds `burst`. So of
-- any T seconds at most rate * T + burst tasks get one. The level counts tasks, not time: it means the same
-- when the rate changes. A bucket that is not there is empty: it had leaked out, or Redis lost its data.
-- A permit is given out some milliseconds before its time, as long as a claim takes. What then comes too
-- early all the same, publish.lua holds back, by a bucket of its own.
-- The rate and burst that were set last count for everybody, also for a node that has not heard of them yet:
-- who asks tells how new those are that it knows, and the newest are kept beside the level. After a while those
-- that nodes know count all the same: PostgreSQL may have lost a change.
--
-- Nodes that wait for permits say a rank: that of the task so far down their line as what comes in some
-- milliseconds. It counts until a little after the time at which they were told to come again, or until the
-- node gives permits back. Nobody gets
-- permits for tasks that rank behind it; so they go in the order of their ranks, but for that little.
--
-- KEYS[1] buckets (hash)   KEYS[2] who waits for permits (hash: node -> "rank said_at until", µs)
-- ARGV[1] rate, ARGV[2] burst, ARGV[3] node, ARGV[4] µs before its time, ARGV[5] how many come back,
-- ARGV[6] what a rank may be behind that of another node, '' = the others need not wait for this node,
-- ARGV[7] how new rate and burst are: a number that grows with each change; then the ranks of the tasks that want permits, the best first
-- Answers {how many were granted, µs after which to ask for more (or for the first: 0 = at once)}.

local rate, burst, node, early = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local revision = tonumber(ARGV[7])
local wanted = #ARGV - 7
local HEARD = 10000000 -- µs after which every node has heard of a change
local TOGETHER, IN_TURN, LINE, GRACE, SKEW = 20000, 20000, 50000, 250000, 1000000 -- µs

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local kept = redis.call('HMGET', KEYS[1], 'level', 'at', 'sent', 'sent_at', 'revision', 'rate', 'burst',
  'revised_at')
if tonumber(kept[5] or 0) > revision and math.abs(now - tonumber(kept[8])) < HEARD then
  rate, burst = tonumber(kept[6]), tonumber(kept[7])
elseif kept[5] ~= ARGV[7] or kept[6] ~= ARGV[1] or kept[7] ~= ARGV[2] then
  redis.call('HSET', KEYS[1], 'revision', ARGV[7], 'rate', ARGV[1], 'burst', ARGV[2],
    'revised_at', string.format('%.0f', now))
end

local function leaked(level, at)
  -- A time to come is of before the clock was set back: nothing has leaked since.
  return math.max(0, tonumber(level or 0) - math.max(0, now - tonumber(at or now)) * rate / 1000000)
end

local most = burst + rate * early / 1000000 -- more is of a larger burst than it has now
local level = math.max(0, math.min(most, leaked(kept[1], kept[2])) - tonumber(ARGV[5]))

-- Of the others the best that waits; what ranks behind it is not to go now.
local lowest
local said = redis.call('HGETALL', KEYS[2])
for i = 1, #said, 2 do
  local rank, said_at, until_at = string.match(said[i + 1], '^(%d+) (%d+) (%d+)$')
  if tonumber(until_at) < now or tonumber(said_at) > now + SKEW then
    redis.call('HDEL', KEYS[2], said[i])
  elseif said[i] ~= node then
    lowest = math.min(lowest or tonumber(rank), tonumber(rank))
  end
end

local free = math.floor(most - level + 0.000001)
local granted, in_turn = 0, true
while granted < wanted and granted < free do
  in_turn = not lowest or tonumber(ARGV[8 + granted]) <= lowest
  if not in_turn then break end
  granted = granted + 1
end
level = level + granted

-- When to come again: once as many are free as come together in a while.
local together = math.min(wanted - granted, math.floor(rate * TOGETHER / 1000000), math.floor(burst / 2))
local wait = math.ceil((level + math.max(1, together) - burst) / rate * 1000000)
wait = math.max(0, wait - (wanted > 0 and early or 0))
if not in_turn then wait = math.max(wait, IN_TURN) end

-- Permits that come back were of tasks that had no turn after all: it may be theirs that it spoke of.
if (wanted > 0 and granted == wanted) or tonumber(ARGV[5]) > 0 then
  redis.call('HDEL', KEYS[2], node)
elseif granted < wanted and ARGV[6] ~= '' then
  local place = math.min(wanted, granted + math.max(1, math.floor(rate * LINE / 1000000)))
  local rank = tonumber(ARGV[7 + place]) + tonumber(ARGV[6])
  -- The first rank of a priority is that of tasks with fairness keys: they hold up none of their priority.
  if tonumber(ARGV[7 + place]) % 100000000000000 == 0 then rank = rank + 99999999000000 - tonumber(ARGV[6]) end
  redis.call('HSET', KEYS[2], node, string.format('%.0f %.0f %.0f', rank, now, now + wait + GRACE))
  local others_ms = math.max(0, redis.call('PTTL', KEYS[2]))
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(others_ms, (wait + GRACE) / 1000)))
end
redis.call('HSET', KEYS[1], 'level', string.format('%.17g', level), 'at', string.format('%.0f', now))
local full = math.max(level, leaked(kept[3], kept[4]))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(full / rate * 1000) + 1000))
return {granted, wait}
