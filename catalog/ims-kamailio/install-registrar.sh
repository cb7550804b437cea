#!/bin/sh
# Puts the registrar's files into the instance's folder, and the subscribers
# into Redis unless another registrar has done so: sub000001@ims.test with the
# password pw-sub000001, and so on. REDIS: address:port. SUBSCRIBERS: how many.
set -eu
files=$VITRINE_SPEC
[ -e "$files/registrar.cfg" ] || files=/etc/ims-kamailio # in a container: mounted there
cp "$files/registrar.cfg" "$files/run.sh" "$VITRINE_DIR"

redis-cli -e -h "${REDIS%:*}" -p "${REDIS##*:}" EVAL "
	for i = redis.call('SCARD', KEYS[1]) + 1, ARGV[1] do
		local user = string.format('sub%06d', i)
		redis.call('HSET', 'subscriber:' .. user, 'password', 'pw-' .. user)
		redis.call('SADD', KEYS[1], user)
	end
	return redis.call('SCARD', KEYS[1])" 1 subscribers "$SUBSCRIBERS"
