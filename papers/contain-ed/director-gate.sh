#!/bin/sh
# Writes the configuration of director.sh with a gate. GATE: the options of its overload
# section, such as {target: 100ms}, or off.
set -eu
sh "$VITRINE_SPEC/director.sh"
if [ "$GATE" != off ]; then
	echo "overload: $GATE" >>"$VITRINE_DIR/director.yaml"
fi
