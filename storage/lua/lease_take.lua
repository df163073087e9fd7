-- Take the leases that are free. KEYS: leases. ARGV[1] holder, ARGV[2] TTL in ms. Answers 1 or 0 each.

local taken = {}
for at, lease in ipairs(KEYS) do
  local ok = redis.call('SET', lease, ARGV[1], 'NX', 'PX', ARGV[2])
  taken[at] = ok and 1 or 0
end
return taken
