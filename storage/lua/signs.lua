-- The signs of life of workers. KEYS: liveness keys. Answers for each {its value, '' = gone; ms it lives on}.

local signs = {}
for at, key in ipairs(KEYS) do
  signs[at] = {redis.call('GET', key) or '', redis.call('PTTL', key)}
end
return signs
