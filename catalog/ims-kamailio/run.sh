#!/bin/sh
# run.sh FILE.cfg: Kamailio in the foreground, in the instance's own folder.
# Told to end, it prints Kamailio's counters first: they end up in the log.
set -eu
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/sbin"
cd "$VITRINE_DIR"
if [ -n "${REDIS:-}" ]; then # address:port
	export REDIS_HOST="${REDIS%:*}" REDIS_PORT="${REDIS##*:}"
fi

# A session of its own, for the signal that ends the instance goes to the
# whole process group, and Kamailio is to answer once more.
setsid kamailio -DD -E -f "$1" -w "$PWD" -Y "$PWD" -P "$PWD/pid" -m 128 -M 4 &
kamailio=$!

finish() {
	trap '' TERM INT
	echo "counters:"
	kamcmd -s unix:ctl stats.get_statistics all | grep -v ' = 0$' || true
	kill -TERM "$kamailio"
}
trap finish TERM INT

status=0
wait "$kamailio" || status=$?
if ! kill -0 "$kamailio" 2>/dev/null; then
	exit "$status"
fi
wait "$kamailio"
