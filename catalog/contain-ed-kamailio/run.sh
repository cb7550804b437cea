#!/bin/sh
# Runs Contain-ed for Kamailio, and calls between two phones that register first.
# SCENARIO: another one of the generator's. See ../contain-ed.sh.
export CONTROL=127.0.0.51:8090
here=$(dirname "$0")
exec sh "$here/../contain-ed.sh" "$here" 2 sip 127.0.0.51:5060 \
	--param scenario="${SCENARIO:-reg-invite}" --param retransmit=true --param timeout=30s --param local=127.0.0.51 --param users=20000
