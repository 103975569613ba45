-- Lists some of the work IDs of an index that were updated before the retention, the oldest first.
local retention, skip, limit = tonumber(ARGV[1]), ARGV[2], ARGV[3]
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. text(now - retention), 'LIMIT', skip, limit)
