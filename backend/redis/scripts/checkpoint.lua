local row, open = KEYS[1], KEYS[2]
local workID, holder, token, ttl, state = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local found = redis.call('HMGET', row, 'holder', 'token', 'exit')
if not mine(found, holder, token) then return {'fenced'} end
if found[3] then return {'expired'} end
redis.call('ZADD', open, text(now), workID)
if state == '' then
  redis.call('HSET', row, 'exp', text(now + ttl), 'upd', text(now))
  redis.call('HDEL', row, 'cp')
else
  redis.call('HSET', row, 'exp', text(now + ttl), 'upd', text(now), 'cp', state)
end
return {'ok'}
