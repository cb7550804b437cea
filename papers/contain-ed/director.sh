#!/bin/sh
# Writes the director's configuration: one type, REGISTER, whose aggregate is entered
# at Bono. ADDRESS: the director's. BONO: address:port of each Bono, with commas.
set -eu
{
	cat <<-END
		listen: {sip: ["udp://$ADDRESS:5060"], control: "127.0.0.1:8090"}
		types: [{name: register, protocol: sip}]
		rules: [{method: REGISTER, type: register}]
		instances:
	END
	number=0
	for address in $(echo "$BONO" | tr , ' '); do
		number=$((number + 1))
		echo "  - {name: register-$number, type: register, address: \"$address\"}"
	done
} >"$VITRINE_DIR/director.yaml"
