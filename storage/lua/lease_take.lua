-- Take the leases that are free, or ours already (an actor that restarted has forgotten them).
-- KEYS: leases. ARGV[1] holder, ARGV[2] TTL in ms. Answers 1 or 0 each.

local taken = {}
for at, lease in ipairs(KEYS) do
  taken[at] = 0
  if redis.call('SET', lease, ARGV[1], 'NX', 'PX', ARGV[2]) then
    taken[at] = 1
  elseif redis.call('GET', lease) == ARGV[1] then
    taken[at] = redis.call('PEXPIRE', lease, ARGV[2])
  end
end
return taken
