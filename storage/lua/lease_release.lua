-- Release the leases that are still ours. KEYS: leases. ARGV[1] holder.

for _, lease in ipairs(KEYS) do
  if redis.call('GET', lease) == ARGV[1] then redis.call('DEL', lease) end
end
return redis.status_reply('OK')
