local answers = {}
for i, row in ipairs(KEYS) do
  local expiry = redis.call('HGET', row, 'exp')
  answers[i] = expiry and tonumber(expiry) > now and 'held' or 'free'
end
return answers
