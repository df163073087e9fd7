-- Renew the leases that are ours, and take those that are free.
--
-- KEYS[1] which run of this server has kept its data since when   KEYS[2…] leases
-- ARGV[1] holder, ARGV[2] TTL in ms, ARGV[3…] for each lease, or one for all of them:
--   renew   only if it is ours
--   take    also if it is free, once this server has kept its data for a TTL: what was held when
--           it restarted, or was emptied, is over by then
--   early   also before that
-- Answers for each 0: not ours, 1: ours, 2: ours, but this server has not kept its data for a TTL;
-- where it is the same of all, that number alone.

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept_run, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%w+) (%d+)$')
since = tonumber(since)
if kept_run ~= run or since > now then
  since = now
  redis.call('SET', KEYS[1], run .. ' ' .. string.format('%d', now))
end
local settled = now - since >= tonumber(ARGV[2])

local held, same = {}, true
local holders = #KEYS > 1 and redis.call('MGET', unpack(KEYS, 2)) or {}
for at = 2, #KEYS do
  local holder, how = holders[at - 1], #ARGV > 3 and ARGV[at + 1] or ARGV[3]
  held[at - 1] = 0
  if holder == ARGV[1] then
    held[at - 1] = redis.call('PEXPIRE', KEYS[at], ARGV[2])
  elseif not holder and (how == 'early' or how == 'take' and settled) then
    redis.call('SET', KEYS[at], ARGV[1], 'PX', ARGV[2])
    held[at - 1] = 1
  end
  if held[at - 1] == 1 and not settled then held[at - 1] = 2 end
  same = same and held[at - 1] == held[1]
end
return same and held[1] or held
