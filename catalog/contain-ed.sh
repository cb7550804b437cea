#!/bin/sh
# Runs Contain-ed as a whole: contain-ed.sh FOLDER TYPES GENERATOR TARGET [ARGUMENT]... starts
# the folder's flex.yaml, waits until the directors steer to an instance of each of so many
# types, and plays calls. VITRINE: the program. RATE: calls a second. SECONDS_OF_CALLS: how
# long. AFTER: shell commands to run in the folder after the calls. CONTROL: the director's
# control address, 127.0.0.1:8090 by default. It prints the generator's report and then stops
# everything. TRIES: how often it checks, every 0.2 s, whether all is ready, 600 by default.
# After that it prints what the orchestrator reported, and fails.
set -eu
folder=$1 types=$2 generator=$3 target=$4
shift 4
vitrine=$(command -v "${VITRINE:-vitrine}") || { echo "no program ${VITRINE:-vitrine}: set VITRINE" >&2; exit 1; }
vitrine=$(readlink -f "$vitrine")
cd "$folder"
scratch=$(mktemp -d)
"$vitrine" flex run flex.yaml >"$scratch/flex.log" 2>&1 &
flex=$!
trap 'kill $flex 2>/dev/null || true; wait $flex || true; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM # a signal alone would not run the line above in every shell
# await repeats a command until it succeeds, while the orchestrator runs.
await() {
	for try in $(seq "${TRIES:-600}"); do
		if "$@"; then return; fi
		kill -0 $flex || break
		sleep 0.2
	done
	echo "not $1 after $try tries; the orchestrator's log and last events:" >&2
	cat "$scratch/flex.log" >&2
	tail -n 20 flex.yaml.flex/events.jsonl >&2 || true
	exit 1
}
active() { [ "$("$vitrine" flex status flex.yaml 2>/dev/null | grep -c ' active ')" -ge "$types" ]; }
# An instance gets requests from the director's next epoch on.
steered() { ! "$vitrine" director status --director "http://${CONTROL:-127.0.0.1:8090}" --json | grep -q '"pending": *true'; }
await active
await steered
"$vitrine" generate "$generator" --rate "${RATE:-5}" --duration "${SECONDS_OF_CALLS:-20}" --targets "$target" --scratch "$scratch" "$@"
eval "${AFTER:-}"
"$vitrine" flex status flex.yaml >&2
