#!/bin/sh
# Puts the edge's files into the instance's folder. REGISTRAR: address:port of
# each registrar, commas between.
set -eu
files=$VITRINE_SPEC
[ -e "$files/edge.cfg" ] || files=/etc/ims-kamailio # in a container: mounted there
cp "$files/edge.cfg" "$files/run.sh" "$VITRINE_DIR"

: >"$VITRINE_DIR/dispatcher.list"
echo "$REGISTRAR" | tr ',' '\n' | while read -r registrar; do
	echo "1 sip:$registrar" >>"$VITRINE_DIR/dispatcher.list"
done
