local row, open, retired = KEYS[1], KEYS[2], KEYS[3]
local workID, holder, token = ARGV[1], ARGV[2], ARGV[3]
if not mine(redis.call('HMGET', row, 'holder', 'token'), holder, token) then return {'fenced'} end
redis.call('DEL', row)
redis.call('ZREM', open, workID)
redis.call('ZREM', retired, workID)
tell(KEYS[4], workID)
return {'ok'}
