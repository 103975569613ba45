-- Every script begins with these lines. Instants are microseconds on the server's clock. As numbers they are
-- exact for the next two centuries; as text they are so only in this format, since tostring() keeps 14 digits.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local function text(n) return string.format('%.0f', n) end

-- Tokens are compared as text, in which no digit is lost.
local function mine(row, holder, token) return row[1] == holder and row[2] == token end

-- Lets those who wait know, if there is a channel for that. Should they not be told, they poll.
local function tell(channel, workID)
  if channel then redis.pcall('PUBLISH', channel, workID) end
end

-- A script that fails half-way keeps what it has written. So whatever may fail comes first, for want of memory or
-- because somebody else uses the key: an entry in an index that has no row, or the wrong one, is found by a sweep.
