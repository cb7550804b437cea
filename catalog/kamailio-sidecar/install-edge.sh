#!/bin/sh
# Puts the files of ims-kamailio's edge into the instance's folder. Calls on their way to a
# phone come from the registrars themselves, behind their sidecars: group 2, from which the
# edge selects nothing, has those addresses. REGISTRAR: address:port of each sidecar, with
# commas.
set -eu
export VITRINE_SPEC="$VITRINE_SPEC/../ims-kamailio"
"$VITRINE_SPEC/install-edge.sh"
echo "$REGISTRAR" | tr ',' '\n' | while read -r sidecar; do
	echo "2 sip:${sidecar%:*}:5061" >>"$VITRINE_DIR/dispatcher.list"
done
