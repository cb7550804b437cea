#!/bin/sh
# A registrar, with SIDECAR=yes behind a sidecar.
set -eu
if [ "$SIDECAR" = no ]; then
	PORT=5060 exec /bin/sh "$VITRINE_DIR/run.sh" registrar.cfg
fi
export PORT=5061 RESTORER_PORT=5062
exec vitrine reference sidecar --listen "$ADDRESS:5060" --function "$ADDRESS:$PORT" --restore-from "$ADDRESS:$RESTORER_PORT" \
	--store "https://$STORE" --store-ca "$VITRINE_DIR/store.pem" --store-token-file "$VITRINE_DIR/token" \
	-- /bin/sh "$VITRINE_DIR/run.sh" registrar.cfg
