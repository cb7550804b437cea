-- Requests of one key after the other, in an order that is neither ascending
-- nor random: wrk ... -- METHOD KEYS BYTES
function init(args)
  method, keys, at = args[1], tonumber(args[2]), 0
  if method == "PUT" then
    body = string.rep("v", tonumber(args[3]))
  end
end

function request()
  at = (at + 7919) % keys -- a prime that keys is not divided by: all come
  return wrk.format(method, "/kv/k" .. at, nil, body)
end
