#!/bin/sh
# Runs Contain-ed for the reference IMS, and calls that register, subscribe and deregister.
# SCENARIO: another one of the generator's. See ../contain-ed.sh.
cd "$(dirname "$0")" && exec sh ../contain-ed.sh 3 sip 127.0.0.1:5060 \
	--param scenario="${SCENARIO:-reg-subscribe}" --param retransmit=true --param timeout=30s --param local=127.0.0.1 --param port=0
