-- Declares an exit. The word final also stores a state, and does so for a lease that has lapsed too.
local row, open, retired = KEYS[1], KEYS[2], KEYS[3]
local workID, holder, token, mode, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local final, state = ARGV[6] == 'final', ARGV[7]
local found = redis.call('HMGET', row, 'holder', 'token', 'exit', 'exp')
if not mine(found, holder, token) then return {'fenced'} end
if found[3] or not final and tonumber(found[4]) <= now then return {'expired'} end
local present, expiry = text(now), text(now + delay)
if mode == 'retired' then redis.call('ZADD', retired, present, workID) end
if final and state ~= '' then
  redis.call('HSET', row, 'exit', mode, 'exp', expiry, 'upd', present, 'cp', state)
else
  redis.call('HSET', row, 'exit', mode, 'exp', expiry, 'upd', present)
end
if final and state == '' then redis.call('HDEL', row, 'cp') end
redis.call('ZREM', open, workID)
if delay == 0 then tell(KEYS[4], workID) end
return {'ok'}
