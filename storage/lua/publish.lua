-- Publish claimed tasks of one queue, if there are any; and tell what waits in the stream and, for
-- lack of room there, with other nodes. A lower token never replaces a higher one, and an entry that
-- is in the stream already is not added again: so publishing twice is harmless. Whoever has claimed them
-- adds none that was published before under its token, wherever its entry is now: another node may have
-- taken it for vanished, and a worker may have reported it.
--
-- Of a queue with a rate it stops at the first task for which it is too early: permits.lua has allowed all of
-- them, but some may have taken longer on their way here than others.
--
-- KEYS[1] tasks stream   KEYS[2] inflight   KEYS[3] entries   KEYS[4] what waits with each node
-- KEYS[5] buckets (see permits.lua)
-- ARGV[1] group, ARGV[2] node, ARGV[3] ms for which its word counts, ARGV[4] the word: the rank behind
-- which the others should publish nothing ('-' = this node has nothing that waits, '' = no word),
-- ARGV[5] rate ('' = none), ARGV[6] burst, ARGV[7] '1' = by whoever has claimed them, ARGV[8] the tasks as
-- MessagePack ('' = none), at most 2,000: for each a list of texts: id, token, type, payload, due, attempt,
-- timeout, queue, confirm and, if it is in a trace or follows another one, traceparent ('' = none) and parent
-- Answers {entries in the stream, of them delivered (-1 = the group is gone), how many other nodes
-- have tasks that wait, the lowest rank that one of them said, how many of the tasks (the last ones) were
-- held back, µs after which they may come again}.

local tasks, inflight, entries, waiting, group = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local node, counts_ms, rank = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local rate, burst = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local sent, held = 0, 0
if rate then
  local kept = redis.call('HMGET', KEYS[5], 'sent', 'sent_at', 'rate', 'burst')
  rate, burst = tonumber(kept[3] or rate), tonumber(kept[4] or burst) -- the newest that permits.lua has seen
  local since = math.max(0, now_us - tonumber(kept[2] or now_us))
  sent = math.max(0, math.min(burst, tonumber(kept[1] or 0) - since * rate / 1000000))
end

local first = ARGV[7] == '1'
local batch, ids, none = ARGV[8] == '' and {} or cmsgpack.unpack(ARGV[8]), {}, {}
for at, task in ipairs(batch) do ids[at] = task[1] end
local tokens = #ids > 0 and redis.call('HMGET', inflight, unpack(ids)) or none

-- One call each at the end, not two for every task. An addition that is refused is the first one (a script
-- that has written runs to its end): then nothing has happened.
local new_tokens, new_entries = {}, {}
for at, task in ipairs(batch) do
  local id, token, known = task[1], task[2], tokens[at]
  local skip = false
  if known then
    if known == token and first then
      skip = true
    elseif known == token then
      local entry = redis.call('HGET', entries, id)
      skip = entry and #redis.call('XRANGE', tasks, entry, entry) > 0
    else
      skip = tonumber(known) > tonumber(token)
    end
  end
  if not skip and rate then
    if sent + 1 > burst + 0.000001 then
      held = #batch + 1 - at
      break
    end
    sent = sent + 1
  end
  if not skip then
    local more = none
    if task[10] then
      more = task[10] ~= '' and {'traceparent', task[10]} or {}
      if task[11] then more[#more + 1], more[#more + 2] = 'parent', task[11] end
    end
    local entry = redis.call('XADD', tasks, '*',
      'id', id, 'token', token, 'type', task[3], 'payload', task[4], 'due', task[5],
      'attempt', task[6], 'timeout', task[7], 'queue', task[8], 'confirm', task[9],
      unpack(more))
    local last = #new_tokens
    new_tokens[last + 1], new_tokens[last + 2] = id, token
    new_entries[last + 1], new_entries[last + 2] = id, entry
  end
end
if #new_tokens > 0 then
  redis.call('HSET', inflight, unpack(new_tokens))
  redis.call('HSET', entries, unpack(new_entries))
end

local wait = 0
if rate and #batch > 0 then
  redis.call('HSET', KEYS[5], 'sent', string.format('%.17g', sent),
    'sent_at', string.format('%.0f', now_us))
  local gone_ms = math.ceil(sent / rate * 1000) + 1000
  if redis.call('PTTL', KEYS[5]) < gone_ms then
    redis.call('PEXPIRE', KEYS[5], string.format('%.0f', gone_ms))
  end
  local together = math.max(1, math.min(held, math.floor(burst / 2)))
  wait = math.max(0, math.ceil((sent + together - burst) / rate * 1000000))
end

if rank == '-' then
  redis.call('HDEL', waiting, node)
elseif rank ~= '' then
  redis.call('HSET', waiting, node, rank .. ' ' .. string.format('%d', now))
  redis.call('PEXPIRE', waiting, counts_ms)
end
local others, lowest = 0, 0
local said = redis.call('HGETALL', waiting)
for at = 1, #said, 2 do
  local its_rank, said_at = string.match(said[at + 1], '^(%d+) (%d+)$')
  -- A word from the future is of before the clock was set back.
  if math.abs(now - (said_at or 0)) >= counts_ms then
    redis.call('HDEL', waiting, said[at])
  elseif said[at] ~= node then
    its_rank = tonumber(its_rank)
    if others == 0 or its_rank < lowest then lowest = its_rank end
    others = others + 1
  end
end

local pending = redis.pcall('XPENDING', tasks, group)
local delivered = -1
if not pending.err then delivered = pending[1] end
return {redis.call('XLEN', tasks), delivered, others, lowest, held, wait}
