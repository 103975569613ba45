local row, open, retired, tokens = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local workID, holder, ttl, read = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local found = redis.call('HMGET', row, 'holder', 'token', 'exp', 'exit')
local prevExit, prevHolder = 'none', ''
if found[1] then
  if tonumber(found[3]) > now then return {'held', found[1], found[3], found[4] or 'none'} end
  prevExit, prevHolder = found[4] or 'expired', found[1]
end
-- The next token is one more than the last, and at least the time, so that a server that has lost the last ones
-- does not give them out again; and more than the row's own. INCR counts exactly where Lua does not.
local last = redis.call('GET', tokens)
local own = found[2]
if own and (not last or #own > #last or (#own == #last and own > last)) then
  redis.call('SET', tokens, own)
  last = own
end
local present = text(now)
local token, expiry = present, text(now + ttl)
if last and tonumber(last) >= now then
  redis.call('INCR', tokens)
  token = redis.call('GET', tokens)
else
  redis.call('SET', tokens, token)
end
redis.call('ZADD', open, present, workID)
redis.call('HSET', row, 'holder', holder, 'token', token, 'exp', expiry, 'upd', present, 'pexit', prevExit, 'pholder', prevHolder)
if found[4] then
  redis.call('HDEL', row, 'exit')
  if found[4] == 'retired' then redis.call('ZREM', retired, workID) end
end
local state = read == 'read' and redis.call('HGET', row, 'cp') or ''
return {'ok', token, expiry, state, prevExit, prevHolder}
