-- Removes what is due. KEYS as in redis.go; ARGV: now (Unix ms), length of the
-- log, space, how many at most. Answers how many it removed.
local R, N, T, I, X, V, L, S = unpack(KEYS)
local due = redis.call('ZRANGEBYSCORE', X, '-inf', ARGV[1], 'LIMIT', 0, ARGV[4])
for _, name in ipairs(due) do
  local raw = redis.call('HGET', R, name)
  local packed = redis.call('HGET', I, name)
  if packed then
    for _, entry in ipairs(cmsgpack.unpack(packed)) do redis.call('ZREM', T, entry) end
    redis.call('HDEL', I, name)
  end
  redis.call('ZREM', X, name)
  redis.call('HDEL', R, name)
  redis.call('ZREM', N, name)
  if raw then
    local revision = redis.call('INCR', V)
    local most = math.max(1, math.min(tonumber(ARGV[2]), math.floor(16777216 / (#raw + 1)))) -- as in write.lua
    redis.call('XADD', L, 'MAXLEN', '~', most, string.format('%d-0', revision),
      'c', 'x', 'n', name, 'r', raw, 'e', 1)
    redis.call('EXPIRE', L, 3600)
  end
end
if redis.call('HLEN', R) == 0 then redis.call('SREM', S, ARGV[3]) end
return #due
