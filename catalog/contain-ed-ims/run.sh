#!/bin/sh
# Runs Contain-ed as a whole: director, store, orchestrator and aggregates, and calls
# that register, subscribe and deregister. VITRINE: the program. RATE: calls a second.
# SECONDS_OF_CALLS: how long. Prints the generator's report and then stops everything.
set -eu
cd "$(dirname "$0")"
vitrine=${VITRINE:-vitrine}
scratch=$(mktemp -d)
"$vitrine" flex run flex.yaml >"$scratch/flex.log" 2>&1 &
flex=$!
trap 'kill $flex; wait $flex || true; rm -rf "$scratch"' EXIT
until [ "$("$vitrine" flex status flex.yaml 2>/dev/null | grep -c ' active ')" -ge 3 ]; do
	kill -0 $flex || { cat "$scratch/flex.log" >&2; exit 1; }
	sleep 0.2
done
# An instance gets requests from the director's next epoch on.
while "$vitrine" director status --director http://127.0.0.1:8090 --json | grep -q '"pending": *true'; do
	sleep 0.2
done
"$vitrine" generate sip --rate "${RATE:-5}" --duration "${SECONDS_OF_CALLS:-20}" --targets 127.0.0.1:5060 --scratch "$scratch" \
	--param scenario="${SCENARIO:-reg-subscribe}" --param retransmit=true --param timeout=30s --param local=127.0.0.1 --param port=0
"$vitrine" flex status flex.yaml >&2
