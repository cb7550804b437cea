-- Removes what is due. It follows common.lua. ARGV[4]: how many at most. Answers
-- how many it removed.
local due = redis.call('ZRANGEBYSCORE', X, '-inf', ARGV[1], 'LIMIT', 0, ARGV[4])
for _, name in ipairs(due) do
  local raw = redis.call('HGET', R, name)
  if raw then remove('x', name, raw) else unindex(name) end
end
if redis.call('HLEN', R) == 0 then redis.call('SREM', S, space) end
return #due
