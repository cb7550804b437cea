-- One Write. It follows common.lua. ARGV from the fourth: for each op its action, name,
-- condition, version (16 hex digits or ""), record, expiry (Unix ms, 0 never),
-- count of tags, tags. Answers version and existed (0 or 1) for each op, or
-- -1, index of the op, version it has, when a condition does not hold.
local ops, at = {}, 4
local puts, deletes, growth = false, false, 0
while at <= #ARGV do
  local o = {action = ARGV[at], name = ARGV[at + 1], condition = ARGV[at + 2], version = ARGV[at + 3],
    record = ARGV[at + 4], expires = tonumber(ARGV[at + 5]), tags = {}}
  local count = tonumber(ARGV[at + 6])
  for i = 1, count do o.tags[i] = ARGV[at + 6 + i] end
  at = at + 7 + count
  ops[#ops + 1] = o
end

for i, o in ipairs(ops) do
  o.old = redis.call('HGET', R, o.name)
  local has = o.old and string.sub(o.old, 1, 16) or ''
  local due = o.old and redis.call('ZSCORE', X, o.name)
  if due and tonumber(due) <= now then
    o.lapsed, has = true, ''
  end
  o.has = has
  if (string.find(o.condition, 'a') and has ~= '') or (string.find(o.condition, 'p') and has == '')
    or (o.version ~= '' and o.version ~= has) then
    return {-1, i - 1, has == '' and 0 or tonumber(has, 16)}
  end
  if o.action == 'p' then
    puts, growth = true, growth + #o.record
  elseif o.action == 'd' and has ~= '' then
    deletes, growth = true, growth - #o.old
  end
end

-- Redis asks for memory at a script's first write alone. Without INCRBY that is
-- ZREM, which needs none. So INCRBY comes first if an op puts. But a full Redis must
-- take the expiry of a timer, which puts its notification in place of the timer.
-- Package embedded has the same number of bytes.
if puts and not (deletes and growth <= 16384) then
  redis.call('INCRBY', V, 0)
end

local results, changed = {}, false
for _, o in ipairs(ops) do
  local existed = o.has ~= '' and 1 or 0
  local version = existed == 1 and tonumber(o.has, 16) or 0
  if o.action == 'p' then
    changed = true
    if o.lapsed then remove('x', o.name, o.old) else unindex(o.name) end
    local raw = string.format('%016x', tonumber(redis.call('GET', V) or '0') + 1) .. o.record
    redis.call('HSET', R, o.name, raw)
    redis.call('ZADD', N, 0, o.name)
    if #o.tags > 0 then
      for _, entry in ipairs(o.tags) do redis.call('ZADD', T, 0, entry) end
      redis.call('HSET', I, o.name, cmsgpack.pack(o.tags))
    end
    if o.expires ~= 0 then redis.call('ZADD', X, o.expires, o.name) end
    version = log('w', o.name, raw, existed)
  elseif o.action == 'd' and existed == 1 then
    changed = true
    version = remove('d', o.name, o.old)
  end
  results[#results + 1] = version
  results[#results + 1] = existed
end
-- The set has the spaces that have records. A script is atomic, so no other
-- write comes between the last deletion and this.
if changed then
  if redis.call('HLEN', R) == 0 then redis.call('SREM', S, space) else redis.call('SADD', S, space) end
end
return results
