-- Deletes those of the rows behind an index that are due, and the entries of the index that are wrong. Answers
-- with the number of rows and that of entries.
local index, retention, exit, channel = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local rows, entries = 0, 0
for i = 2, #KEYS do
  local row, workID = KEYS[i], ARGV[i + 2]
  local found = redis.call('HMGET', row, 'exp', 'upd', 'exit')
  if not found[1] or (found[3] or 'none') ~= exit then
    redis.call('ZREM', index, workID)
    entries = entries + 1
  else
    local expiry, last = tonumber(found[1]), tonumber(found[2])
    local held = expiry > now
    if exit == 'none' and expiry > last then last = expiry end
    if not held and now - last > retention then
      redis.call('DEL', row)
      redis.call('ZREM', index, workID)
      if exit == 'none' and channel ~= '' then tell(channel, workID) end -- of a release it was told then
      rows, entries = rows + 1, entries + 1
    end
  end
end
return {text(rows), text(entries)}
