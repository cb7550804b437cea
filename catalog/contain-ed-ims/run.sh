#!/bin/sh
# Runs Contain-ed for the reference IMS, and calls that register, subscribe and deregister.
# SCENARIO: another one of the generator's. See ../contain-ed.sh.
here=$(dirname "$0")
exec sh "$here/../contain-ed.sh" "$here" 3 sip 127.0.0.1:5060 \
	--param scenario="${SCENARIO:-reg-subscribe}" --param retransmit=true --param timeout=30s --param local=127.0.0.1 --param port=0
