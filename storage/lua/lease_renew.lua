-- Renew the leases that are still ours. KEYS: leases. ARGV[1] holder, ARGV[2] TTL in ms. Answers 1 or 0.

local renewed = {}
for at, lease in ipairs(KEYS) do
  renewed[at] = 0
  if redis.call('GET', lease) == ARGV[1] then
    renewed[at] = redis.call('PEXPIRE', lease, ARGV[2])
  end
end
return renewed
