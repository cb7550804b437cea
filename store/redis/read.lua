-- Reads records. KEYS: records. ARGV: bytes, names. Answers the records of the
-- names in order, false for none, and ends after the record that reaches the
-- bytes.
local found, left = {}, tonumber(ARGV[1])
for i = 2, #ARGV do
  local raw = redis.call('HGET', KEYS[1], ARGV[i])
  found[#found + 1] = raw
  left = left - (raw and #raw or 0)
  if left <= 0 then break end
end
return found
