-- Keep a node's figures of one minute; writing them again replaces them.
--
-- KEYS[1] the minute's hash   ARGV[1] node, ARGV[2] figures, ARGV[3] ms for which the minute is kept

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.status_reply('OK')
