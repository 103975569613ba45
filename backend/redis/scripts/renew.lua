-- Renews each of the rows in KEYS, and answers with one word for each.
local ttl = tonumber(ARGV[1])
local answers = {}
for i, row in ipairs(KEYS) do
  local found = redis.call('HMGET', row, 'holder', 'token', 'exit', 'exp')
  if not mine(found, ARGV[2 * i], ARGV[2 * i + 1]) then
    answers[i] = 'fenced'
  elseif found[3] or tonumber(found[4]) <= now then
    answers[i] = 'expired'
  else
    redis.call('HSET', row, 'exp', text(now + ttl))
    answers[i] = 'ok'
  end
end
return answers
