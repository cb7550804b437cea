#!/bin/sh
# Runs Contain-ed as a whole: contain-ed.sh FOLDER TYPES GENERATOR TARGET [ARGUMENT]... starts
# the folder's flex.yaml, waits until the directors steer to an instance of each of so many
# types, and plays calls. VITRINE: the program. RATE: calls a second. SECONDS_OF_CALLS: how
# long. AFTER: shell commands to run in the folder after the calls. CONTROL: the director's
# control address, 127.0.0.1:8090 by default. It prints the generator's report and then stops
# everything.
set -eu
folder=$1 types=$2 generator=$3 target=$4
shift 4
vitrine=$(command -v "${VITRINE:-vitrine}") || { echo "no program ${VITRINE:-vitrine}: set VITRINE" >&2; exit 1; }
vitrine=$(realpath "$vitrine")
cd "$folder"
scratch=$(mktemp -d)
"$vitrine" flex run flex.yaml >"$scratch/flex.log" 2>&1 &
flex=$!
trap 'kill $flex 2>/dev/null || true; wait $flex || true; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM # a signal alone would not run the line above in every shell
until [ "$("$vitrine" flex status flex.yaml 2>/dev/null | grep -c ' active ')" -ge "$types" ]; do
	kill -0 $flex || { cat "$scratch/flex.log" >&2; exit 1; }
	sleep 0.2
done
# An instance gets requests from the director's next epoch on.
while "$vitrine" director status --director "http://${CONTROL:-127.0.0.1:8090}" --json | grep -q '"pending": *true'; do
	sleep 0.2
done
"$vitrine" generate "$generator" --rate "${RATE:-5}" --duration "${SECONDS_OF_CALLS:-20}" --targets "$target" --scratch "$scratch" "$@"
eval "${AFTER:-}"
"$vitrine" flex status flex.yaml >&2
