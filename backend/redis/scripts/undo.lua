-- Takes back an acquisition that nobody has heard of: the next one finds the state, the exit and the holder that
-- this one found. The token stays as it is.
local row, open, retired = KEYS[1], KEYS[2], KEYS[3]
local workID, holder, token = ARGV[1], ARGV[2], ARGV[3]
local found = redis.call('HMGET', row, 'holder', 'token', 'exit', 'pexit', 'pholder', 'upd')
if not mine(found, holder, token) then return {'fenced'} end
if found[3] then return {'expired'} end
local prevExit = found[4]
if prevExit == 'none' then
  redis.call('DEL', row)
  redis.call('ZREM', open, workID)
  tell(KEYS[4], workID)
  return {'ok'}
end
if prevExit == 'expired' then
  redis.call('HSET', row, 'holder', found[5], 'exp', text(now))
  tell(KEYS[4], workID)
  return {'ok'}
end
if prevExit == 'retired' then redis.call('ZADD', retired, found[6], workID) end
redis.call('HSET', row, 'holder', found[5], 'exp', text(now), 'exit', prevExit)
redis.call('ZREM', open, workID)
tell(KEYS[4], workID)
return {'ok'}
