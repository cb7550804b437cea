#!/bin/sh
# run.sh: one of NextEPC's daemons in the foreground, in the instance's own folder.
# NAME: mme, sgw, pgw, hss or pcrf.
set -eu
cd "$VITRINE_DIR"
if [ "$NAME" = pgw ]; then # the interface of the user plane, as in pgw.conf
	ip tuntap add name pgwtun mode tun
	ip address add 45.45.0.1/16 dev pgwtun
	ip link set pgwtun up
fi
LD_PRELOAD="$PWD/shim.so" exec "nextepc-${NAME}d" -f "$PWD/$NAME.conf" -p "$PWD/pid"
