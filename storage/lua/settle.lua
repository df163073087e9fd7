-- Clean up after recorded outcomes of one queue: the entry that told of it (a report, or the task
-- entry of a lost worker; '' = none), and what is kept of the task, its own entry included, unless
-- a newer token has taken its place. A worker that did not delete its entry leaves nothing behind.
--
-- KEYS[1] stream of the entries   KEYS[2] inflight   KEYS[3] entries   KEYS[4] tasks stream
-- ARGV[1] group of KEYS[1], ARGV[2] group of KEYS[4], then three words each: entry id, task id, token;
-- at most 2,000 of them

local stream, inflight, entries, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local told, ids = {}, {}
for at = 3, #ARGV, 3 do
  if ARGV[at] ~= '' then told[#told + 1] = ARGV[at] end
  ids[#ids + 1] = ARGV[at + 1]
end
if #told > 0 then
  redis.pcall('XACK', stream, ARGV[1], unpack(told))
  redis.call('XDEL', stream, unpack(told))
end
if #ids == 0 then return redis.status_reply('OK') end

local over, own = {}, {}
local tokens, found = redis.call('HMGET', inflight, unpack(ids)), redis.call('HMGET', entries, unpack(ids))
for at, id in ipairs(ids) do
  if tokens[at] == ARGV[2 + 3 * at] then
    over[#over + 1] = id
    own[#own + 1] = found[at] or nil
  end
end
if #own > 0 then
  redis.pcall('XACK', tasks, ARGV[2], unpack(own))
  redis.pcall('XDEL', tasks, unpack(own))
end
if #over > 0 then
  redis.call('HDEL', inflight, unpack(over))
  redis.call('HDEL', entries, unpack(over))
end
return redis.status_reply('OK')
