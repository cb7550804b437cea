-- The beginning of write.lua and sweep.lua. KEYS as in redis.go: records, names, tags,
-- indexed, expiry, revision, log, spaces. ARGV: now (Unix ms), length of the log, space,
-- then what the script itself needs.
local R, N, T, I, X, V, L, S = unpack(KEYS)
local now, length, space = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local function log(change, name, raw, existed)
  local revision = redis.call('INCR', V)
  local most = math.max(1, math.min(length, math.floor(16777216 / (#raw + 1)))) -- 16 MiB of such changes
  redis.call('XADD', L, 'MAXLEN', '~', most, string.format('%d-0', revision),
    'c', change, 'n', name, 'r', raw, 'e', existed)
  redis.call('EXPIRE', L, 3600) -- a space that rests keeps no values twice
  return revision
end

local function unindex(name)
  local packed = redis.call('HGET', I, name)
  if packed then
    for _, entry in ipairs(cmsgpack.unpack(packed)) do redis.call('ZREM', T, entry) end
    redis.call('HDEL', I, name)
  end
  redis.call('ZREM', X, name)
end

local function remove(change, name, raw)
  unindex(name)
  redis.call('HDEL', R, name)
  redis.call('ZREM', N, name)
  return log(change, name, raw, 1)
end
