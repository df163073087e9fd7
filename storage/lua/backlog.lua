-- KEYS[1] tasks stream, ARGV[1] group. Answers {entries, of them delivered (-1 = the group is gone)}.

local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1])
if pending.err then return {redis.call('XLEN', KEYS[1]), -1} end
return {redis.call('XLEN', KEYS[1]), pending[1]}
