-- Answers with what a server must be: its version, its role, its limit of memory, and what it does at it.
local function info(section, pattern) return redis.call('INFO', section):match(pattern) or '' end
return {
  info('server', 'redis_version:(%S+)'), info('replication', 'role:(%S+)'),
  info('memory', 'maxmemory:(%d+)'), info('memory', 'maxmemory_policy:(%S+)'),
}
